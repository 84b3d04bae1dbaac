// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/oidctest"
	"navix.sh/atoll/e2e/plane"
)

// statusOf returns what a hub responds to a caller with a token.
func statusOf(t *testing.T, h running, method, path, token string) int {
	t.Helper()
	body := "{}"
	if path == "/v1/sandboxes" {
		body = `{"env":"demo"}`
	}
	code, _ := call(t, method, "http://"+h.api+path, token, body)
	return code
}

// A hub that trusts dex serves an admin of it, and others no more than they are bound to.
func TestATokenOfAnIssuerOpensTheHub(t *testing.T) {
	dex := oidctest.Start(t, time.Hour)
	o := testOptions(t)
	o.ways, o.oidcConfig, o.ttl = []string{authOIDC}, filepath.Join(t.TempDir(), "issuers.yaml"), time.Minute
	must.Succeed(t, os.WriteFile(o.oidcConfig, fmt.Appendf(nil,
		"issuers:\n- {url: %s, audiences: [%s], claims: {user: email}, admins: [atoll-admins]}\n", dex.Issuer, oidctest.Client), 0o600))
	must.Succeed(t, o.authOptions.validate())
	h := start(t, o)
	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"no token":                {"", 401},
		"an API key":              {"atoll_abc", 401},
		"an admin":                {dex.Token("alice", oidctest.Client), 200},
		"an admin, by another":    {dex.Token("alice", oidctest.OtherClient), 401},
		"a caller without a role": {dex.Token("bob", oidctest.Client), 403},
	} {
		if got := statusOf(t, h, http.MethodGet, "/v1/clusters", tc.token); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// A hub that delegates to a cluster does what the RBAC of that says: in the namespaces that are bound, and nowhere else.
func TestTheClustersRBACOpensTheHub(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	set, err := plane.Up(ctx, plane.Options{}, "auth")
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, set.Down(context.Background())) })
	on := set.Plane("auth")
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := on.Kubectl(ctx, args...)
		must.Succeed(t, err)
		return strings.TrimSpace(out)
	}
	kubectl("apply", "-f", filepath.Join("..", "charts", "hub", "files", "rbac", "roles.yaml"))
	for _, account := range []string{"viewer", "user", "admin", "stranger"} {
		kubectl("create", "serviceaccount", account, "-n", "default")
	}
	kubectl("create", "rolebinding", "v", "-n", "default", "--clusterrole=atoll-viewer", "--serviceaccount=default:viewer")
	kubectl("create", "rolebinding", "u", "-n", "default", "--clusterrole=atoll-user", "--serviceaccount=default:user")
	kubectl("create", "clusterrolebinding", "a", "--clusterrole=atoll-admin", "--serviceaccount=default:admin")
	o := testOptions(t)
	o.ways, o.kubeconfig, o.audiences, o.ttl = []string{authKubernetes}, on.Kubeconfig(), []string{"atoll"}, time.Minute
	must.Succeed(t, o.authOptions.validate())
	h := start(t, o)
	tokens := map[string]string{"": ""}
	for _, account := range []string{"viewer", "user", "admin", "stranger"} {
		tokens[account] = kubectl("create", "token", account, "-n", "default", "--audience=atoll")
	}
	tokens["for the API server"] = kubectl("create", "token", "admin", "-n", "default")
	for _, tc := range []struct {
		who, method, path string
		want              int
	}{
		{"", "GET", "/v1/clusters", 401},
		{"for the API server", "GET", "/v1/clusters", 401},
		{"stranger", "GET", "/v1/envs?namespace=default", 403},
		{"viewer", "GET", "/v1/envs?namespace=default", 200},
		{"viewer", "GET", "/v1/sandboxes?namespace=default", 200},
		{"viewer", "GET", "/v1/envs?namespace=kube-system", 403},
		{"viewer", "GET", "/v1/sandboxes", 200}, // none of other namespaces
		{"viewer", "POST", "/v1/sandboxes", 403},
		{"viewer", "POST", "/v1/clusters/east:drain", 403},
		{"user", "POST", "/v1/sandboxes", 404},
		{"stranger", "GET", "/v1/clusters", 403},
		{"user", "GET", "/v1/clusters/east", 403}, // clusters are in no namespace
		{"admin", "GET", "/v1/clusters/east", 404},
		{"admin", "GET", "/v1/envs?namespace=kube-system", 200},
		{"admin", "POST", "/v1/clusters/east:drain", 404},
	} {
		if got := statusOf(t, h, tc.method, tc.path, tokens[tc.who]); got != tc.want {
			t.Errorf("%q: %s %s: %d, want %d", tc.who, tc.method, tc.path, got, tc.want)
		}
	}
}
