// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"navix.sh/atoll/e2e/must"
)

func list(t *testing.T, text string) []*structpb.Struct {
	t.Helper()
	l, err := structs([]byte(text))
	must.Succeed(t, err)
	return l
}

func TestParseNamesEveryFault(t *testing.T) {
	many := "[" + strings.Repeat(`{"exec":{"command":["a"]}},`, MaxHooks) + `{"exec":{"command":["a"]}}]`
	for _, tc := range []struct{ text, fields string }{
		{`[{}]`, "postStartHooks[0]"},
		{`[{"exec":{"command":["a"]},"http":{"port":1}}]`, "postStartHooks[0]"},
		{`[{"exec":{"command":["a"]}},{"exce":{}}]`, "postStartHooks[1].exce postStartHooks[1]"},
		{`[{"exec":{}}]`, "postStartHooks[0].exec.command"},
		{`[{"exec":{"command":"a b"}}]`, "postStartHooks[0].exec.command"},
		{`[{"exec":{"command":[""]}}]`, "postStartHooks[0].exec.command"},
		{`[{"exec":{"command":["a",1]}}]`, "postStartHooks[0].exec.command"},
		{`[{"exec":{"command":["a\u0000"]}}]`, "postStartHooks[0].exec.command"},
		{`[{"exec":{"command":["a"],"container":"A b"}}]`, "postStartHooks[0].exec.container"},
		{`[{"exec":[]}]`, "postStartHooks[0].exec postStartHooks[0].exec.command"},
		{`[{"http":{}}]`, "postStartHooks[0].http.port"},
		{`[{"http":{"port":0}}]`, "postStartHooks[0].http.port"},
		{`[{"http":{"port":1.5}}]`, "postStartHooks[0].http.port"},
		{`[{"http":{"port":1e300}}]`, "postStartHooks[0].http.port"},
		{`[{"http":{"port":"80"}}]`, "postStartHooks[0].http.port"},
		{`[{"http":{"port":1,"path":"init"}}]`, "postStartHooks[0].http.path"},
		{`[{"http":{"port":1,"path":"//elsewhere.example/"}}]`, "postStartHooks[0].http.path"},
		{`[{"http":{"port":1,"path":"http://elsewhere.example/"}}]`, "postStartHooks[0].http.path"},
		{`[{"http":{"port":1,"host":"elsewhere.example"}}]`, "postStartHooks[0].http.host"},
		{`[{"http":{"port":1,"scheme":"gopher"}}]`, "postStartHooks[0].http.scheme"},
		{`[{"http":{"port":1,"method":"CONNECT"}}]`, "postStartHooks[0].http.method"},
		{`[{"http":{"port":1,"headers":{"a b":"c"}}}]`, "postStartHooks[0].http.headers.a b"},
		{`[{"http":{"port":1,"headers":{"a":"b\r\nc: d"}}}]`, "postStartHooks[0].http.headers.a"},
		{`[{"http":{"port":1,"body":{}}}]`, "postStartHooks[0].http.body"},
		{`[{"http":{"port":1,"body":{"valueFrom":{}}}}]`, "postStartHooks[0].http.body"},
		{`[{"http":{"port":1,"headers":{"A":{"valueFrom":{"secretKeyRef":{"name":"A_","key":"k"}}}}}}]`,
			"postStartHooks[0].http.headers.A.valueFrom.secretKeyRef.name"},
		{`[{"http":{"port":1,"headers":{"A":{"valueFrom":{"secretKeyRef":{"name":"a"}}}}}}]`,
			"postStartHooks[0].http.headers.A.valueFrom.secretKeyRef.key"},
		{`[{"http":{"port":1,"headers":{"A":{"valueFrom":{"configMapKeyRef":{"name":"a","key":"k"}}}}}}]`,
			"postStartHooks[0].http.headers.A.valueFrom.configMapKeyRef"},
		{`[{"http":{"port":1,"body":{"valueFrom":{"secretKeyRef":{"name":"a","key":"k","optional":true}}}}}]`,
			"postStartHooks[0].http.body.valueFrom.secretKeyRef.optional"},
		{`[{"exec":{"command":["a"]},"timeout":"1h"}]`, "postStartHooks[0].timeout"},
		{`[{"exec":{"command":["a"]},"timeout":5}]`, "postStartHooks[0].timeout"},
		{`[{"exec":{"command":["a"]},"retries":21}]`, "postStartHooks[0].retries"},
		{`[{"exec":{"command":["a"]},"name":"a\nb"}]`, "postStartHooks[0].name"},
		{many, "postStartHooks"},
		{`[{"http":{"port":1,"body":"` + strings.Repeat("x", MaxSize) + `"}}]`, "postStartHooks"},
	} {
		actions, faults := Parse(list(t, tc.text))
		var fields []string
		for _, f := range faults {
			fields = append(fields, f.Field)
			if f.Valid == "" {
				t.Errorf("%.80s: %s does not say what is valid", tc.text, f.Field)
			}
		}
		if got := strings.Join(fields, " "); got != tc.fields || actions != nil {
			t.Errorf("%.80s: faults in %q, want %q", tc.text, got, tc.fields)
		}
	}
}

// A value of the wrong type is named by its type.
func TestWrongTypesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		`[{"exec":{"command":"ls"}}]`:                 "a string",
		`[{"exec":{"command":["ls",1]}}]`:             "a list with a number",
		`[{"exec":{"command":["ls"]},"timeout":5}]`:   "a number",
		`[{"exec":{"command":["ls"]},"retries":"5"}]`: "a string",
		`[{"http":{"port":1,"headers":["a"]}}]`:       "a list",
		`[{"http":{"port":1,"body":{"a":"b"}}}]`:      "an object",
	} {
		faults := Faults(list(t, text))
		if len(faults) == 0 || faults[0].Value != want {
			t.Errorf("%s: %+v, want %q", text, faults, want)
		}
	}
}

// Secrets of a hook must not appear in an error; because errors end up in logs.
func TestFaultsQuoteNoSecret(t *testing.T) {
	const text = `[{"exec":{"command":["a","hunter2\u0000"]}},{"http":{"port":1,"body":["hunter2"],"headers":{"Authorization":"hunter2\n"}}}]`
	faults := Faults(list(t, text))
	if len(faults) != 3 || strings.Contains(fmt.Sprint(faults), "hunter2") {
		t.Errorf("faults: %v", faults)
	}
}

func TestEncodeAndDecode(t *testing.T) {
	const text = `[{"name":"env","http":{"port":49983,"path":"/init?a=b","scheme":"HTTPS","method":"PUT","headers":{"A":"b",` +
		`"C":{"valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}},"body":"{}"}},` +
		`{"http":{"port":80,"body":{"valueFrom":{"secretKeyRef":{"name":"s","key":"body"}}}}},` +
		`{"exec":{"command":["sh","-c","true"],"container":"main"},"timeout":"1m30s","retries":0}]`
	actions, faults := Parse(list(t, text))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	got, err := Encode(actions)
	if err != nil || got != text {
		t.Errorf("encoded to %s (%v)", got, err)
	}
	again, err := Decode(got)
	if err != nil || !reflect.DeepEqual(again, actions) {
		t.Errorf("decoded to %v (%v)", again, err)
	}
	if got, err := Encode(nil); got != "" || err != nil {
		t.Errorf("no hooks encode to %q (%v)", got, err)
	}
	for _, bad := range []string{"{", "[1]", `[{"exec":{}}]`} {
		if _, err := Decode(bad); err == nil {
			t.Errorf("decoded %s", bad)
		}
	}
	header, body := actions[0].HTTP.Headers["C"].From, actions[1].HTTP.Body.From
	if refs := fmt.Sprint(header, body); refs != `key "k" of Secret "s" key "body" of Secret "s"` {
		t.Errorf("references %s", refs)
	}
	if title := actions[0].Title(0) + ", " + actions[2].Title(1); title != `hook 0 (http, "env"), hook 1 (exec)` {
		t.Error(title)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`[{"exec":{"command":["a"]},"timeout":"1s","retries":1}]`)
	f.Add(`[{"http":{"port":80,"path":"/a?b","headers":{"a":"b"},"body":"c"}}]`)
	f.Fuzz(func(t *testing.T, text string) {
		actions, err := Decode(text)
		if err != nil {
			return
		}
		encoded, err := Encode(actions)
		must.Succeed(t, err)
		if again, err := Decode(encoded); err != nil || len(again) != len(actions) {
			t.Fatalf("%s is not read back: %v", encoded, err)
		}
	})
}

func TestLiteralsAreHeadersOfCredentials(t *testing.T) {
	actions, faults := Parse(list(t,
		`[{"exec":{"command":["a"]}},{"http":{"port":1,"headers":{"authorization":"hunter2","X-API-Key":"hunter2","Accept":"b",
		"Cookie":{"valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}}}}]`))
	if got := strings.Join(Literals(actions), " "); len(faults) > 0 ||
		got != "postStartHooks[1].http.headers.X-API-Key postStartHooks[1].http.headers.authorization" {
		t.Errorf("%s, %v", got, faults)
	}
}
