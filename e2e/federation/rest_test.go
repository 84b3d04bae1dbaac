// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// reply is the part of a REST response that the test reads.
type reply struct {
	code    int
	header  http.Header
	text    string
	Id      string `json:"id"`
	Phase   string `json:"phase"`
	Sandbox struct {
		Id string `json:"id"`
	} `json:"sandbox"`
	Sandboxes []struct {
		Id string `json:"id"`
	} `json:"sandboxes"`
	NextPageToken string `json:"nextPageToken"`
	Reason        string `json:"reason"`
	Detail        string `json:"detail"`
	Status        int    `json:"status"`
	ClaimKey      string `json:"claimKey"`
	LastActiveAt  string `json:"lastActiveAt"`
	IdleTimeout   string `json:"idleTimeout"`
	Pause         struct {
		State string `json:"state"`
	} `json:"pause"`
	Errors  []struct{ Field, Value, Valid string }
	OpenAPI string         `json:"openapi"`
	Paths   map[string]any `json:"paths"`
}

// call makes one HTTP request to the hub and fails the test unless the status is the wanted one.
func call(ctx context.Context, t *testing.T, want int, method, path, body string, header ...string) *reply {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, atoll.HubEndpoint().URL()+path, strings.NewReader(body))
	must.Succeed(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := rest.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	text := must.Read(t, response.Body)
	got := &reply{code: response.StatusCode, header: response.Header, text: string(text)}
	if err := json.Unmarshal(text, got); err != nil {
		t.Fatalf("%s %s answers %d, which is no JSON (%v): %s", method, path, got.code, err, text)
	}
	if got.code != want {
		t.Fatalf("%s %s answers %d, want %d: %s", method, path, got.code, want, text)
	}
	if got.code >= 400 && (got.header.Get("Content-Type") != "application/problem+json" || got.Status != got.code || got.Detail == "") {
		t.Errorf("%s %s: %d of type %s is not a problem document: %s", method, path, got.code, got.header.Get("Content-Type"), text)
	}
	return got
}

func TestRESTAndProblems(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "rest", equally(1)...)
	t.Cleanup(rest.CloseIdleConnections)
	body := fmt.Sprintf(`{"env": %q, "user": "ada"}`, e.Name)

	var ids, keys []string
	for range clusters {
		key := unused("rest")
		keys = append(keys, key)
		first := call(ctx, t, 200, "POST", "/v1/sandboxes", body, "Idempotency-Key", key)
		second := call(ctx, t, 200, "POST", "/v1/sandboxes", body, "Idempotency-Key", key)
		if first.Id == "" || first.Id != second.Id || first.Phase != "RUNNING" {
			t.Fatalf("one Idempotency-Key is answered\n%s\nand\n%s", first.text, second.text)
		}
		ids = append(ids, first.Id)
	}
	slices.Sort(ids)

	t.Run("get", func(t *testing.T) {
		if got := call(ctx, t, 200, "GET", "/v1/sandboxes/"+ids[0], ""); got.Id != ids[0] {
			t.Errorf("got %s", got.text)
		}
		if got := call(ctx, t, 200, "GET", "/v1/claims/"+url.PathEscape(keys[0]), ""); !slices.Contains(ids, got.Sandbox.Id) {
			t.Errorf("the claim shows sandbox %q: %s", got.Sandbox.Id, got.text)
		}
	})
	t.Run("list", func(t *testing.T) { e.wantLists(ctx, t, ids) })
	t.Run("problems", func(t *testing.T) { e.wantProblems(ctx, t, ids[0], keys[0]) })
	t.Run("pause and resume", func(t *testing.T) {
		for _, step := range []struct{ call, state string }{{":pause", "PAUSED"}, {":pause", "PAUSED"}, {":resume", ""}, {":resume", ""}} {
			got := call(ctx, t, 200, "POST", "/v1/sandboxes/"+ids[0]+step.call, "{}")
			if got.Phase != "RUNNING" || got.Pause.State != step.state {
				t.Errorf("%s answers %s, want state %q", step.call, got.text, step.state)
			}
			if shown := call(ctx, t, 200, "GET", "/v1/sandboxes/"+ids[0], ""); shown.Pause.State != step.state {
				t.Errorf("after %s it is %s, want state %q", step.call, shown.text, step.state)
			}
		}
	})
	t.Run("touch and timeouts", func(t *testing.T) {
		if got := call(ctx, t, 200, "POST", "/v1/sandboxes/"+ids[0]+":touch", "{}"); got.LastActiveAt == "" {
			t.Errorf("touched: %s", got.text)
		}
		if got := call(ctx, t, 200, "PATCH", "/v1/sandboxes/"+ids[0], `{"idleTimeout":"3600s"}`); got.IdleTimeout != "3600s" {
			t.Errorf("with another timeout: %s", got.text)
		}
		if got := call(ctx, t, 400, "PATCH", "/v1/sandboxes/"+ids[0], "{}"); len(got.Errors) != 1 || got.Errors[0].Field != "idleTimeout" {
			t.Errorf("changing nothing: %s", got.text)
		}
	})
	t.Run("openapi", func(t *testing.T) {
		got := call(ctx, t, 200, "GET", "/openapi.json", "")
		if got.OpenAPI != "3.1.0" || got.Paths["/v1/sandboxes"] == nil {
			t.Errorf("the OpenAPI document has %d paths, and not /v1/sandboxes", len(got.Paths))
		}
	})
	t.Run("atollctl", func(t *testing.T) { e.wantAtollctl(ctx, t, ids) })
	t.Run("release", func(t *testing.T) {
		call(ctx, t, 200, "DELETE", "/v1/sandboxes/"+ids[0], "")
		wait.For(t, patience, "the record of the released sandbox", func(ctx context.Context) error {
			got := call(ctx, t, 200, "GET", "/v1/sandboxes/"+ids[0], "")
			return wait.If(got.Phase == "ENDED", got.text)
		})
		call(ctx, t, 200, "DELETE", "/v1/sandboxes/"+ids[0], "")
	})
	mustVerify(ctx, t)
}

// wantLists tests filters and pages.
func (e *env) wantLists(ctx context.Context, t *testing.T, ids []string) {
	t.Helper()
	reversed := slices.Clone(ids)
	slices.Reverse(reversed)
	for query, want := range map[string][]string{
		"user=ada":                      ids,
		"user=ada&phase=RUNNING":        ids,
		"user=ada&namespace=default":    ids,
		"user=bob":                      nil,
		"phase=STARTING":                nil,
		"clusterId=" + ids[0][27:]:      ids[:1],
		"pageSize=2":                    ids[:2],
		"orderBy=id+desc":               reversed,
		"orderBy=claimedAt&readMask=id": ids,
		"labelSelector=!app":            ids,
		"labelSelector=app":             nil,
		"metadataSelector=title=x":      nil,
		"metadataSelector=title!=x":     ids,
	} {
		listed := call(ctx, t, 200, "GET", "/v1/sandboxes?env="+e.Name+"&"+query, "")
		var got []string
		for _, s := range listed.Sandboxes {
			got = append(got, s.Id)
		}
		if !slices.Equal(got, want) {
			t.Errorf("?%s lists %v, want %v", query, got, want)
		}
		if strings.Contains(query, "readMask") && strings.Contains(listed.text, "podIp") {
			t.Errorf("?%s: %s", query, listed.text)
		}
		if query != "pageSize=2" {
			continue
		}
		next := "/v1/sandboxes?env=" + e.Name + "&pageToken=" + listed.NextPageToken
		if rest := call(ctx, t, 200, "GET", next, ""); len(rest.Sandboxes) != 1 || rest.Sandboxes[0].Id != ids[2] || rest.NextPageToken != "" {
			t.Errorf("after two: %s", rest.text)
		}
		for _, other := range []string{"&user=ada", "&orderBy=id+desc"} {
			if got := call(ctx, t, 400, "GET", next+other, ""); len(got.Errors) != 1 || got.Errors[0].Field != "pageToken" {
				t.Errorf("a token of another query: %s", got.text)
			}
		}
	}
	if got := call(ctx, t, 400, "GET", "/v1/sandboxes?readMask=id,phse", ""); len(got.Errors) != 1 || got.Errors[0].Value != "phse" {
		t.Errorf("an unknown field: %s", got.text)
	}
}

func (e *env) wantProblems(ctx context.Context, t *testing.T, id, key string) {
	t.Helper()
	invalid := call(ctx, t, 400, "POST", "/v1/sandboxes", `{"env": "", "multiplier": -1, "clusters": ["East"]}`, "Idempotency-Key", "bad")
	var fields []string
	for _, f := range invalid.Errors {
		fields = append(fields, f.Field)
		if f.Valid == "" {
			t.Errorf("%s: it is not said what would be valid: %s", f.Field, invalid.text)
		}
	}
	slices.Sort(fields)
	if want := []string{"clusters[0]", "env", "multiplier"}; invalid.Reason != "INVALID" || !slices.Equal(fields, want) ||
		invalid.ClaimKey != "bad" {
		t.Errorf("reason %s, fields %v, claimKey %q; want INVALID, %v and the key: %s", invalid.Reason, fields, invalid.ClaimKey, want,
			invalid.text)
	}
	for what, got := range map[string]*reply{
		"unknown field":   call(ctx, t, 400, "POST", "/v1/sandboxes", `{"environment": "rest"}`),
		"no JSON":         call(ctx, t, 400, "POST", "/v1/sandboxes", `{"env"`),
		"no such enum":    call(ctx, t, 400, "GET", "/v1/sandboxes?phase=NAPPING", ""),
		"no sandbox's id": call(ctx, t, 400, "GET", "/v1/sandboxes/nonsense", ""),
	} {
		if got.Reason != "INVALID" {
			t.Errorf("%s: reason %s: %s", what, got.Reason, got.text)
		}
	}
	missing := call(ctx, t, 404, "POST", "/v1/sandboxes", `{"env": "no-such-env"}`)
	if missing.Reason != "NOT_FOUND" || !strings.Contains(missing.Detail, e.Name) {
		t.Errorf("an unknown Env is answered %s, and not with the ones there are: %s", missing.Reason, missing.text)
	}
	call(ctx, t, 404, "GET", "/v1/sandboxes/"+strings.Repeat("0", 26)+id[26:], "")
	call(ctx, t, 404, "GET", "/v1/claims/unheard-of", "")
	call(ctx, t, 404, "GET", "/v1/clusters/nowhere", "")
	conflict := call(ctx, t, 409, "POST", "/v1/sandboxes", fmt.Sprintf(`{"env": %q, "user": "bob"}`, e.Name), "Idempotency-Key", key)
	if conflict.Reason != "CLAIM_KEY_CONFLICT" || conflict.ClaimKey != key {
		t.Errorf("other parameters are answered %s", conflict.text)
	}
	full := call(ctx, t, 503, "POST", "/v1/sandboxes", fmt.Sprintf(`{"env": %q, "noQueue": true}`, e.Name))
	if full.Reason != "NO_CAPACITY" || full.header.Get("Retry-After") == "" {
		t.Errorf("no room is answered with Retry-After %q: %s", full.header.Get("Retry-After"), full.text)
	}
}

// wantAtollctl runs the command against the hub.
func (e *env) wantAtollctl(ctx context.Context, t *testing.T, ids []string) {
	t.Helper()
	names := atollctl(ctx, t, "sandboxes", "--env", e.Name, "-o", "name")
	if got := strings.Fields(names); !slices.Equal(got, ids) {
		t.Errorf("-o name prints %q, want %v", names, ids)
	}
	all, one := &reply{}, &reply{}
	if err := json.Unmarshal([]byte(atollctl(ctx, t, "sandboxes", "--env", e.Name, "-o", "json")), all); err != nil ||
		len(all.Sandboxes) != len(ids) {
		t.Errorf("-o json has %d sandboxes, want %d: %v", len(all.Sandboxes), len(ids), err)
	}
	if err := json.Unmarshal([]byte(atollctl(ctx, t, "sandboxes", ids[0], "-o", "json")), one); err != nil || one.Id != ids[0] ||
		one.Phase != "RUNNING" {
		t.Errorf("-o json of %s reads %+v, %v", ids[0], one, err)
	}
	if got := strings.Fields(atollctl(ctx, t, "clusters", "-o", "name")); !slices.Equal(got, clusters) {
		t.Errorf("clusters -o name prints %v", got)
	}
}

// atollctl runs a command that must succeed, and returns its output.
func atollctl(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, code := exits(ctx, t, args...)
	if code != 0 {
		t.Fatalf("atollctl %v exits with %d:\n%s", args, code, out)
	}
	return out
}
