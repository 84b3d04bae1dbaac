// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const document = "../../api/sandbox/v1/openapi.json"

// list is an exchange as the document has it.
func list() exchange {
	return exchange{
		Method: "GET", URL: "http://localhost:8080/v1/clusters", RequestHeader: http.Header{}, Status: 200,
		ResponseHeader: http.Header{"Content-Type": {"application/json"}}, ResponseBody: `{"clusters": [], "waiting": []}`,
	}
}

func problem(status int, reason string) exchange {
	e := list()
	e.Status, e.ResponseHeader = status, http.Header{"Content-Type": {"application/problem+json"}, "Retry-After": {"1"}}
	body, _ := json.Marshal(map[string]any{"type": "about:blank", "title": "x", "status": status, "detail": "x", "reason": reason})
	e.ResponseBody = string(body)
	return e
}

// events is a watch with one event.
func events(name, data string) exchange {
	return exchange{
		Method: "GET", URL: "http://localhost:8080/v1/sandboxes?watch=true", RequestHeader: http.Header{}, Status: 200,
		ResponseHeader: http.Header{"Content-Type": {"text/event-stream"}}, ResponseBody: "id: x\nevent: " + name + "\ndata: " + data + "\n\n",
	}
}

func TestFaultsAreFound(t *testing.T) {
	with := func(change func(*exchange)) exchange {
		e := list()
		change(&e)
		return e
	}
	for name, tt := range map[string]struct {
		exchange exchange
		fault    string // empty: none
	}{
		"a list": {list(), ""},
		"a verb": {with(func(e *exchange) {
			e.Method, e.URL, e.ResponseBody = "POST", "http://localhost:8080/v1/hub:acceptLoss", `{}`
		}), "epoch"},
		"a verb of a thing": {with(func(e *exchange) {
			e.Method, e.URL, e.ResponseBody = "POST", "http://localhost:8080/v1/clusters/east:drain", `{}`
		}), "incarnation"},
		"a problem":            {problem(503, "UNAVAILABLE"), ""},
		"another reason":       {problem(503, "NOT_FOUND"), "reason"},
		"another status":       {problem(409, "CLAIM_KEY_CONFLICT"), "409"},
		"an event":             {events("ADDED", `{"type": "ADDED", "sandbox": {"id": "x", "phase": "RUNNING"}}`), ""},
		"an event's type":      {events("ADDED", `{"type": "ADDDED"}`), "type"},
		"a field of an event":  {events("ADDED", `{"type": "ADDED", "sandbox": {"phase": "NAPPING"}}`), "phase"},
		"an event's error":     {events("ERROR", `{"type": "ADDED"}`), "reason"},
		"no such path":         {with(func(e *exchange) { e.URL += "/a/b/c" }), "c"},
		"no such method":       {with(func(e *exchange) { e.Method = "PUT" }), "PUT"},
		"a field is missing":   {with(func(e *exchange) { e.ResponseBody = `{}` }), "clusters"},
		"a field's type":       {with(func(e *exchange) { e.ResponseBody = `{"clusters": {}}` }), "array"},
		"another content type": {with(func(e *exchange) { e.ResponseHeader.Set("Content-Type", "text/html") }), "text/html"},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := json.Marshal(tt.exchange)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "exchanges")
			if err := os.WriteFile(file, line, 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			found, err := run([]string{document, file}, &out)
			if err != nil {
				t.Fatal(err)
			}
			if (found > 0) != (tt.fault != "") || !strings.Contains(out.String(), tt.fault) {
				t.Errorf("%d faults, want one about %q:\n%s", found, tt.fault, &out)
			}
		})
	}
}

// A reference to nothing, and a document of another version.
func TestADocumentsFaultsAreFound(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for old, changed := range map[string]string{
		`"in": "path"`:                         `"in": "road"`,
		`"$ref": "#/components/responses/404"`: `"$ref": "#/components/responses/nothing"`,
	} {
		file := filepath.Join(t.TempDir(), "openapi.json")
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), old, changed, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := run([]string{file}, &strings.Builder{}); err == nil && found == 0 {
			t.Errorf("%s in place of %s is not found", changed, old)
		}
	}
}
