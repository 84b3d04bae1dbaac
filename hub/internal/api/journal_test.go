// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/serve"
)

// Creates, releases, cancels and refusals are logged with their caller and the claim key's hash, and never with the key.
func TestCallsAreLogged(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	ctx := principal.With(t.Context(), principal.Principal{Name: "ci", Team: "red"})
	sandbox := &sandboxv1.Sandbox{Id: "01-east", ClusterId: "east", Namespace: "default", Env: "py", ClaimKey: "secret", Team: "red"}
	hash := ledger.KeyHash("red", "default", "secret")
	const create, release = sandboxv1.Sandboxes_CreateSandbox_FullMethodName, sandboxv1.Sandboxes_ReleaseSandbox_FullMethodName
	request := &sandboxv1.CreateSandboxRequest{Env: "py", ClaimKey: "secret"}
	for name, tc := range map[string]struct {
		method string
		req    any
		resp   any
		err    error
		want   []string // nothing: no line
	}{
		"create":  {create, request, sandbox, nil, []string{"Created a sandbox", `"sandbox"="01-east"`, `"env"="default/py"`, hash}},
		"refused": {create, request, nil, problem.New(problem.QueueFull, "full"), []string{"Refused a create", "QUEUE_FULL", hash}},
		"conflict": {create, request, nil, problem.New(problem.ClaimKeyConflict, "claim key %q was used", "secret"),
			[]string{"Refused a create", "claim key (its hash is claimKeyHash) was used"}},
		"invalid": {create, request, nil, problem.InvalidField("metadata[secret]", "secret", "text"), []string{"metadata: want text"}},
		"left":    {create, request, nil, context.Canceled, []string{"has left", hash}},
		"release": {release, &sandboxv1.ReleaseSandboxRequest{Id: "01-east"}, sandbox, nil, []string{"Released a sandbox", "01-east", hash}},
		"cancel": {sandboxv1.Claims_CancelClaim_FullMethodName, &sandboxv1.CancelClaimRequest{ClaimKey: "secret"},
			&sandboxv1.Claim{Sandbox: sandbox}, nil, []string{"Cancelled a claim", "01-east", hash}},
		"get": {sandboxv1.Sandboxes_GetSandbox_FullMethodName, &sandboxv1.GetSandboxRequest{}, sandbox, nil, nil},
	} {
		lines = nil
		_, err := serve.Journal(log, caller, ledger.KeyHash)(ctx, tc.req, &grpc.UnaryServerInfo{FullMethod: tc.method},
			func(context.Context, any) (any, error) { return tc.resp, tc.err })
		all := strings.Join(lines, "\n")
		if (len(lines) == 1) != (tc.want != nil) || err != tc.err || strings.Contains(all, "secret") { //nolint:errorlint // the very error
			t.Errorf("%s: %v %s", name, err, all)
		}
		for _, want := range append(tc.want, `"principal"="ci"`, `"team"="red"`) {
			if tc.want != nil && !strings.Contains(all, want) {
				t.Errorf("%s: %s lacks %s", name, all, want)
			}
		}
	}
}

// The server logs the calls that it serves, with the caller that it has admitted.
func TestTheServerLogsACreate(t *testing.T) {
	token, auth := authOf(t, Key{Name: "ci", Team: "red", AllNamespaces: true, Scopes: []Scope{ScopeClaim}})
	var mu sync.Mutex
	var lines []string
	log := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{})
	base := serveAPI(t, newFleet(t, "default/demo"), Options{Auth: auth, Log: log})
	exchange(t, base, "POST", "/v1/sandboxes", `{"env":"dmeo","claimKey":"secret"}`, "Authorization", "Bearer "+token)

	mu.Lock()
	defer mu.Unlock()
	want := `"principal"="ci" "team"="red" "env"="default/dmeo" "claimKeyHash"="` + ledger.KeyHash("red", "default", "secret") + `"`
	if len(lines) != 1 || !strings.Contains(lines[0], `"msg"="Refused a create" `+want) {
		t.Errorf("logged %q, want %s", lines, want)
	}
}
