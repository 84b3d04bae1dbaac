// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// oneTemplate keeps one.
type oneTemplate struct {
	mu   sync.Mutex
	kept *Template
}

func (o *oneTemplate) Find(context.Context, string) ([]Template, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kept == nil {
		return nil, nil
	}
	return []Template{*o.kept}, nil
}
func (*oneTemplate) Room(context.Context, Template) error { return nil }
func (o *oneTemplate) Put(_ context.Context, t Template) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = &t
	return nil
}
func (o *oneTemplate) Settle(ctx context.Context, t Template) error { return o.Put(ctx, t) }
func (o *oneTemplate) Delete(context.Context, string, string) error { return nil }

// TestTheStatusOfABuildIsTrue: it is what became of the sandboxes that have its image, of which the first decides.
func TestTheStatusOfABuildIsTrue(t *testing.T) {
	type row struct {
		idle   int      // sandboxes that get a Pod
		refuse string   // instead of the first one
		states []string // of their claims
		want   string   // the status
		says   string   // its reason
	}
	const running, starting, pulled = `{"state":"RUNNING"}`, `{"state":"STARTING"}`,
		`{"state":"ENDED","sandbox":{"startedAt":"2026-01-01T00:00:00Z"}}`
	const unpulled = `{"state":"ENDED","sandbox":{"stopReason":"Failed","failureReason":"ErrImagePull","failureMessage":"no such image"}}`
	for name, tc := range map[string]row{
		"pulled":                   {2, "", []string{running, pulled}, "ready", ""},
		"one is pulled":            {2, "", []string{running, starting}, "building", ""},
		"no room for more":         {1, "", []string{pulled}, "ready", ""},
		"the others fail":          {3, "", []string{pulled, unpulled, `{"state":"EXPIRED"}`}, "ready", ""},
		"it waits":                 {1, "", []string{`{"state":"WAITING"}`}, "building", ""},
		"its cluster is away":      {1, "", []string{`{"state":"UNKNOWN"}`}, "building", ""},
		"not pulled":               {2, "", []string{unpulled, running}, "error", "no such image"},
		"no Pod in time":           {1, "", []string{`{"state":"EXPIRED"}`}, "error", "no Pod was idle"},
		"cancelled":                {1, "", []string{`{"state":"ENDED","message":"cancelled"}`}, "error", "cancelled"},
		"its claim is not known":   {1, "", []string{""}, "error", "build it again"},
		"the image is not allowed": {0, "image x is not allowed", nil, "", "not allowed"},
	} {
		var mu sync.Mutex
		var begun, ended []string
		g, server := front(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			key := strings.TrimPrefix(r.URL.Path, "/v1/claims/")
			i := slices.Index(begun, key)
			switch {
			case r.URL.Path == "/v1/access:check":
				_, _ = io.WriteString(w, `{"allowed":true,"team":"red"}`)
			case r.Method == http.MethodPost && len(begun) == tc.idle:
				w.WriteHeader(http.StatusForbidden)
				_, _ = fmt.Fprintf(w, `{"detail":%q}`, tc.refuse)
			case r.Method == http.MethodPost:
				var in struct {
					ClaimKey, Image, StartupTimeout, MaxLifetime string
					NoQueue                                      bool
				}
				if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Image != "x" || in.StartupTimeout != "300s" ||
					in.MaxLifetime != "360s" || in.NoQueue != (len(begun) > 0) {
					t.Errorf("%s: claimed %+v, %v", name, in, err)
				}
				begun = append(begun, in.ClaimKey)
				_, _ = io.WriteString(w, `{}`)
			case r.Method == http.MethodDelete:
				ended = append(ended, key)
				_, _ = io.WriteString(w, `{}`)
			case i < 0 || tc.states[i] == "":
				w.WriteHeader(http.StatusNotFound)
			default:
				_, _ = io.WriteString(w, tc.states[i])
			}
		})
		g.opts.Templates, g.opts.BuildEnv, g.opts.BuildSandboxes = &oneTemplate{}, "agents/python", 3
		g.routes()
		ask := func(method, path, body string) (int, map[string]any) {
			status, _, text := send(t, method, server.URL+path, body)
			out := map[string]any{}
			_ = json.Unmarshal([]byte(text), &out)
			return status, out
		}
		status, out := ask(http.MethodPost, "/v2/templates/mine/builds/b1", `{"fromImage":"x"}`)
		if tc.refuse != "" {
			if status != http.StatusForbidden || !strings.Contains(fmt.Sprint(out), tc.says) || g.opts.Templates.(*oneTemplate).kept != nil {
				t.Errorf("%s: %d %v, want it refused and not kept", name, status, out)
			}
			continue
		}
		if status != http.StatusAccepted {
			t.Errorf("%s: %d %v", name, status, out)
		}
		for range 2 { // a settled status stays, whatever becomes of the claims
			if status, out = ask(http.MethodGet, "/templates/mine/builds/b1/status", ""); status != http.StatusOK || out["status"] != tc.want ||
				!strings.Contains(fmt.Sprint(out["reason"]), tc.says) {
				t.Errorf("%s: %d %v, want %s: %s", name, status, out, tc.want, tc.says)
			}
		}
		if want := map[bool]int{true: 0, false: len(begun)}[tc.want == Building]; len(ended) != want {
			t.Errorf("%s: ended %v of %v, want %d", name, ended, begun, want)
		}
	}
}
