// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// kept keeps the last request of a list, a create and a claim.
type kept struct {
	echo
	list   *sandboxv1.ListSandboxesRequest
	create *sandboxv1.CreateSandboxRequest
}

func (k *kept) ListSandboxes(_ context.Context, r *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	k.list = proto.CloneOf(r)
	return &sandboxv1.ListSandboxesResponse{}, nil
}

func (k *kept) CreateSandbox(_ context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	k.create = proto.CloneOf(r)
	return &sandboxv1.Sandbox{}, nil
}

func startKept(t *testing.T) (*kept, string, *http.Client) {
	t.Helper()
	k := &kept{}
	address := start(t, func(o *Options) { o.Services = Public(k, echo{}, echo{}, echo{}, echo{}) })
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return k, "http://" + address, client
}

// Each wrong parameter and field is refused by its name, with its value and what is valid.
func TestWrongRequestsNameFieldValueAndWhatIsValid(t *testing.T) {
	_, base, client := startKept(t)
	for _, tc := range []struct {
		method, path, body  string
		field, value, valid string // of the first error; valid is how it begins
	}{
		{"GET", "/v1/sandboxes?cluster=west", "", "cluster", "west", "clusterId; there are: "},
		{"GET", "/v1/sandboxes?pagesize=5", "", "pagesize", "5", "pageSize; there are: "},
		{"GET", "/v1/sandboxes?colour=red", "", "colour", "red", "one of: clusterId, "},
		{"GET", "/v1/sandboxes?pageSize=ten", "", "pageSize", "ten", "a whole number"},
		{"GET", "/v1/sandboxes?pageSize=1&pageSize=2", "", "pageSize", "1,2", "one value"},
		{"GET", "/v1/sandboxes?phase=ASLEEP", "", "phase", "ASLEEP", "one of: PENDING, STARTING, RUNNING"},
		{"GET", "/v1/sandboxes?endedAfter=yesterday", "", "endedAfter", "yesterday", "a time such as"},
		{"GET", "/v1/sandboxes?env=%zz", "", "query", "env=%zz", "a query as in"},
		{"GET", "/v1/sandboxes/x?id=y", "", "id", "y", "no query parameter here"},
		{"GET", "/v1/claims/k?namespce=a", "", "namespce", "a", "namespace; there are: namespace, team"},
		{"DELETE", "/v1/claims/k?force=true", "", "force", "true", "one of: namespace, team"},
		{"POST", "/v1/sandboxes?env=demo", `{"env":"demo"}`, "env", "demo", "no query parameter here"},
		{"POST", "/v1/sandboxes", `{"env":"demo","startupTimeout":"soon"}`, "startupTimeout", "soon", ValidDuration},
		{"POST", "/v1/sandboxes", `{"env":"demo","startupTimeout":600}`, "startupTimeout", "600", ValidDuration},
		{"POST", "/v1/sandboxes", `{"env":"demo","wait":"LATER"}`, "wait", "LATER", "one of: READY, ASSIGNED, NONE"},
		{"POST", "/v1/sandboxes", `{"env":"demo","noQueue":"yes"}`, "noQueue", "yes", "true or false"},
		{"POST", "/v1/sandboxes", `{"env":"demo","multiplier":1.5}`, "multiplier", "1.5", "a whole number"},
		{"POST", "/v1/sandboxes", `{"env":["demo"]}`, "env", "a list", "a string"},
		{"POST", "/v1/sandboxes", `{"env":"demo","clusters":"east"}`, "clusters", "east", "a list"},
		{"POST", "/v1/sandboxes", `{"env":"demo","clusters":["east",7]}`, "clusters[1]", "7", "a string"},
		{"POST", "/v1/sandboxes", `{"env":"demo","labels":{"a":{"hidden":"x"}}}`, "labels.a", "an object", "a string"},
		{"POST", "/v1/sandboxes", `{"env":"demo","postStartHooks":["ls"]}`, "postStartHooks[0]", "ls", "an object"},
		{"POST", "/v1/sandboxes", "{\"env\":\"demo\",\"user\":\"canary\xff\"}", "user", "canary\ufffd", "text in UTF-8"},
		{"POST", "/v1/sandboxes", `{"env":"demo","user":"canary\ud800","startupTimeout":"10m"}`, "user", "canary\ufffd", "text in UTF-8"},
		{"POST", "/v1/sandboxes", `{"env":"demo","labels":{"\udfff":"a"}}`, "labels", "\ufffd", "text in UTF-8"},
		{"POST", "/v1/sandboxes", `{"evn":"demo"}`, "evn", "demo", "env; there are: "},
		{"POST", "/v1/sandboxes", `{"env":"a","env":"b"}`, "env", "given twice", "each name once"},
		{"POST", "/v1/sandboxes", `{"env":"a"} {}`, "body", "", "one JSON object; there is more after byte 11"},
		{"POST", "/v1/sandboxes", `{"env":`, "body", "", "one JSON object; it ends or has an error at byte 7"},
		{"POST", "/v1/sandboxes", `{"env": python}`, "body", "", "one JSON object; it ends or has an error at byte 8"},
		{"POST", "/v1/sandboxes", `[]`, "body", "a list", "an object"},
	} {
		code, body, _ := rest(t, client, tc.method, base+tc.path, tc.body)
		var got struct {
			Reason problem.Reason
			Detail string
			Errors []problem.Field
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || code != 400 || got.Reason != problem.Invalid || len(got.Errors) != 1 {
			t.Errorf("%s %s %s: %d %s", tc.method, tc.path, tc.body, code, body)
			continue
		}
		e := got.Errors[0]
		if e.Field != tc.field || e.Value != tc.value || !strings.HasPrefix(e.Valid, tc.valid) || strings.Contains(body, "hidden") {
			t.Errorf("%s %s %s: %s", tc.method, tc.path, tc.body, body)
		}
		if strings.Contains(body, "proto:") || strings.Contains(body, "rpc error") {
			t.Errorf("%s %s %s: not in our words: %s", tc.method, tc.path, tc.body, body)
		}
	}
}

func TestEveryWrongParameterIsNamedAtOnce(t *testing.T) {
	_, base, client := startKept(t)
	_, body, _ := rest(t, client, "GET", base+"/v1/sandboxes?phase=X&pageSize=y&cluster=z", "")
	for _, field := range []string{"phase", "pageSize", "cluster"} {
		if !strings.Contains(body, `"field":"`+field+`"`) {
			t.Errorf("%s is not named: %s", field, body)
		}
	}
}

// A duration may have any form that Go reads, in the query and in the body.
func TestRequestsAreReadWhole(t *testing.T) {
	k, base, client := startKept(t)
	code, body, _ := rest(t, client, "GET", base+"/v1/sandboxes?cluster_id=west&pageSize=5&phase=ENDED&endedAfter=2026-03-01T12:00:00Z", "")
	if r := k.list; code != 200 || r.GetClusterId() != "west" || r.GetPageSize() != 5 || r.GetPhase() != sandboxv1.Phase_ENDED ||
		r.GetEndedAfter().AsTime().Year() != 2026 {
		t.Errorf("%d %s: %v", code, body, r)
	}
	for form, seconds := range map[string]int64{"600s": 600, "10m": 600, "1h0m1s": 3601, "1500ms": 1} {
		code, body, _ := rest(t, client, "POST", base+"/v1/sandboxes", `{"env":"demo","startupTimeout":"`+form+
			`","multiplier":"2","metadata":{"a":"b"},"postStartHooks":[{"exec":{"command":["true"]}}],"wait":null}`)
		r := k.create
		if code != 200 || r.GetStartupTimeout().GetSeconds() != seconds || r.GetMultiplier() != 2 || len(r.GetPostStartHooks()) != 1 ||
			r.GetMetadata()["a"] != "b" {
			t.Errorf("%s: %d %s: %v", form, code, body, r)
		}
		if form == "1500ms" && r.GetStartupTimeout().GetNanos() != 500_000_000 {
			t.Errorf("%s is read as %s", form, r.GetStartupTimeout())
		}
	}
}

func TestAVerbThatIsNotThereIsNotFound(t *testing.T) {
	_, base, client := startKept(t)
	for path, want := range map[string]string{
		"/v1/sandboxes/x:bogus":        `/v1/sandboxes/x has no :bogus`,
		"/v1/envs/default/demo:expain": `/v1/envs/default/demo has no :expain`,
	} {
		if code, body, _ := rest(t, client, "POST", base+path, ""); code != http.StatusNotFound || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %q", path, code, body, want)
		}
	}
	if code, body, _ := rest(t, client, "POST", base+"/v1/claims/a:b", ""); code != http.StatusMethodNotAllowed {
		t.Errorf("a claim key with a colon: %d %s", code, body)
	}
}

func TestWrongMethodNamesTheRightOnes(t *testing.T) {
	_, base, client := startKept(t)
	for path, allow := range map[string]string{
		"/v1/sandboxes": "GET, POST", "/v1/sandboxes/x": "GET, PATCH, DELETE", "/v1/clusters": "GET", "/v1/claims/k": "GET, DELETE",
	} {
		code, body, header := rest(t, client, "PUT", base+path, "")
		if code != http.StatusMethodNotAllowed || header.Get("Allow") != allow || !strings.Contains(body, `"status":405`) {
			t.Errorf("PUT %s: %d, Allow %q, want %q: %s", path, code, header.Get("Allow"), allow, body)
		}
	}
}
