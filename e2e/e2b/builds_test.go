// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/e2b"
)

// build makes a template as the SDK does, and returns the status of its last call, which no longer builds.
func build(t *testing.T, name, body string) (status int, out map[string]any) {
	t.Helper()
	defer func() {
		path := fmt.Sprintf("/templates/%s/builds/%s/status", out["templateID"], out["buildID"])
		for out["status"] == "building" && status == http.StatusOK {
			wait.For(t, time.Minute, "the build", func(context.Context) error {
				status, out = call(t, http.MethodGet, path, "")
				return wait.If(out["status"] != "building", out)
			})
		}
	}()
	status, out = call(t, http.MethodPost, "/v3/templates", `{"name":"`+name+`"}`)
	if status != http.StatusAccepted {
		return status, out
	}
	path := fmt.Sprintf("/templates/%s/builds/%s", out["templateID"], out["buildID"])
	if status, out = call(t, http.MethodPost, "/v2"+path, body); status != http.StatusAccepted {
		return status, out
	}
	return call(t, http.MethodGet, path+"/status", "")
}

// A build that names an image alone is a name for it: sandboxes of that name have it.
func TestATemplateBuildNamesAnImage(t *testing.T) {
	readyOfAtLeast(t, reset, 1)
	status, out := build(t, "mine", `{"fromImage":"registry.example/tenant","steps":[]}`)
	if status != http.StatusOK || out["status"] != "ready" {
		t.Fatalf("build: %d %v", status, out)
	}
	wait.For(t, time.Minute, "the end of the sandbox that has tried the image", func(context.Context) error {
		_, tried := public(t, http.MethodGet, "/v1/sandboxes?phase=ENDED&env="+reset.Name, "")
		text := fmt.Sprint(tried["sandboxes"])
		return wait.If(strings.Contains(text, "e2b-build:") && strings.Contains(text, "startedAt"), text)
	})
	if status, out = call(t, http.MethodGet, "/templates/aliases/mine", ""); status != http.StatusOK {
		t.Errorf("its alias: %d %v", status, out)
	}
	status, out = call(t, http.MethodPost, "/v2/sandboxes", `{"templateID":"mine","timeout":60}`)
	if status != http.StatusCreated {
		t.Fatalf("create: %d %v", status, out)
	}
	id := fmt.Sprint(out["sandboxID"])
	if _, got := public(t, http.MethodGet, "/v1/sandboxes/"+id, ""); got["image"] != "registry.example/tenant" || got["env"] != reset.Name {
		t.Errorf("the sandbox is %v", got)
	}
	if printed, err := run(t, id, fmt.Sprint(out["envdAccessToken"]), "echo ran"); err != nil || printed != "ran\n" {
		t.Errorf("it printed %q, %v", printed, err)
	}
	if status, out := call(t, http.MethodDelete, "/sandboxes/"+id, ""); status != http.StatusNoContent {
		t.Errorf("kill: %d %v", status, out)
	}
	blue, err := e2b.ClientKey(tokens["blue"])
	must.Succeed(t, err)
	for _, path := range []string{"/templates/aliases/mine", "/templates/aliases/other"} {
		if status, out := call(t, http.MethodGet, path, "", "X-API-KEY", blue); status != http.StatusNotFound {
			t.Errorf("%s of another team: %d %v", path, status, out)
		}
	}
	if status, out := call(t, http.MethodDelete, "/templates/mine", ""); status != http.StatusNoContent {
		t.Errorf("delete: %d %v", status, out)
	}
	if status, out := call(t, http.MethodPost, "/v2/sandboxes", `{"templateID":"mine"}`); status != http.StatusNotFound {
		t.Errorf("create after that: %d %v", status, out)
	}
}

func TestWhatIsNotBuilt(t *testing.T) {
	for _, row := range []struct {
		name, body string
		want       int
		says       string
	}{
		{"a/b", ``, http.StatusBadRequest, "name"},
		{"a", `{"fromImage":"x","steps":[{"type":"RUN"}]}`, http.StatusNotImplemented, "fromImage"},
		{"a", `{"fromImage":"x","startCmd":"y"}`, http.StatusNotImplemented, "fromImage"},
		{"a", `{"fromImage":"x","fromImageRegistry":{"type":"aws"}}`, http.StatusNotImplemented, "imagePullSecrets"},
		{"a", `{"fromImage":"NOT AN IMAGE"}`, http.StatusBadRequest, "fromImage"},
		{"a", `{}`, http.StatusBadRequest, "fromImage"},
	} {
		if status, out := build(t, row.name, row.body); status != row.want || !strings.Contains(fmt.Sprint(out["message"]), row.says) {
			t.Errorf("%s %s: %d %v, want %d with %s", row.name, row.body, status, out, row.want, row.says)
		}
	}
	// The Env does not allow it: nothing is registered.
	if status, out := build(t, "stranger", `{"fromImage":"registry.example/other","steps":[]}`); status != http.StatusForbidden ||
		!strings.Contains(fmt.Sprint(out["message"]), "registry.example/other") {
		t.Errorf("an image that the Env does not allow: %d %v", status, out)
	}
	if status, out := call(t, http.MethodGet, "/templates/aliases/stranger", ""); status != http.StatusNotFound {
		t.Errorf("its name: %d %v", status, out)
	}
	if status, out := build(t, "own", `{"fromTemplate":"python"}`); status != http.StatusOK {
		t.Errorf("a name for an Env: %d %v", status, out)
	}
	if status, out := call(t, http.MethodGet, "/templates/own/builds/other/status", ""); status != http.StatusNotFound {
		t.Errorf("another build: %d %v", status, out)
	}
}

// A repeated create with the same Idempotency-Key returns the same sandbox.
func TestIdempotencyKey(t *testing.T) {
	ready(t)
	var ids []string
	for range 2 {
		status, out := call(t, http.MethodPost, "/v2/sandboxes", `{"templateID":"python","timeout":60}`, "Idempotency-Key", "once")
		if status != http.StatusCreated {
			t.Fatalf("create: %d %v", status, out)
		}
		ids = append(ids, fmt.Sprint(out["sandboxID"]))
	}
	other, _ := create(t, "/v2/sandboxes", "")
	if ids[0] != ids[1] || other == ids[0] {
		t.Errorf("sandboxes %v with one key, and %s with none", ids, other)
	}
	if status, out := call(t, http.MethodPost, "/v2/sandboxes", `{"templateID":"python","timeout":61}`, "Idempotency-Key",
		"once"); status != http.StatusConflict {
		t.Errorf("another request with that key: %d %v, want 409", status, out)
	}
	if status, _ := call(t, http.MethodDelete, "/sandboxes/"+ids[0], ""); status != http.StatusNoContent {
		t.Errorf("kill: %d", status)
	}
}
