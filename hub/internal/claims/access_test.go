// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"strings"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
)

// A claim of a caller that is bound to Envs and clusters goes to these alone: those that it prefers first, and no others.
func TestAClaimStaysWhereItsCallerMayClaim(t *testing.T) {
	policy := access.NewPolicy(&sandboxv1.AccessPolicy{Bindings: []*sandboxv1.RoleBinding{{
		Name: "b", Role: access.User, Namespaces: []string{"n"}, Envs: []string{"n/py"}, Clusters: []string{"east", "west"},
		Subjects: []*sandboxv1.Subject{{Kind: access.SubjectTeam, Name: "red"}},
	}}})
	who := &access.Identity{Kind: access.KindOIDC, Name: "ann", Team: "red", AllNamespaces: true}
	create := access.OfMethod(sandboxv1.Sandboxes_CreateSandbox_FullMethodName).Permission
	p := principal.Of(who, create, policy.Grant(who, create))
	for name, c := range map[string]struct {
		in   *sandboxv1.CreateSandboxRequest
		want string // its clusters; FORBIDDEN
	}{
		"no wish":      {&sandboxv1.CreateSandboxRequest{Namespace: "n", Env: "py"}, "east west"},
		"a preference": {&sandboxv1.CreateSandboxRequest{Namespace: "n", Env: "py", Clusters: []string{"north", "west"}}, "west east"},
		"one of its own": {&sandboxv1.CreateSandboxRequest{Namespace: "n", Env: "py", Clusters: []string{"west"}, RequireClusters: true},
			"west"},
		"one that is not": {&sandboxv1.CreateSandboxRequest{Namespace: "n", Env: "py", Clusters: []string{"north"}, RequireClusters: true},
			"FORBIDDEN"},
		"another Env":         {&sandboxv1.CreateSandboxRequest{Namespace: "n", Env: "go"}, "FORBIDDEN"},
		"another namespace":   {&sandboxv1.CreateSandboxRequest{Namespace: "m", Env: "py"}, "FORBIDDEN"},
		"another team's name": {&sandboxv1.CreateSandboxRequest{Namespace: "n", Env: "py", Team: "blue"}, "FORBIDDEN"},
	} {
		out, err := resolve(c.in, p)
		got := strings.Join(out.GetClusters(), " ")
		if err != nil {
			got = string(problem.FromError(err).Reason)
		}
		if got != c.want || err == nil && !out.GetRequireClusters() {
			t.Errorf("%s: %s, required %t, %v; want %s", name, got, out.GetRequireClusters(), err, c.want)
		}
	}
}
