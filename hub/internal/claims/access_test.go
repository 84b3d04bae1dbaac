// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"strings"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
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

// An error names no Env and no cluster that its caller may not see.
func TestAnErrorNamesOnlyWhatItsCallerSees(t *testing.T) {
	as := func(env string) context.Context {
		policy := access.NewPolicy(&sandboxv1.AccessPolicy{Bindings: []*sandboxv1.RoleBinding{{
			Name: "b", Role: access.User, Namespaces: []string{"default"}, Envs: []string{"default/" + env}, Clusters: []string{"west"},
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectTeam, Name: "t"}},
		}}})
		who := &access.Identity{Kind: access.KindOIDC, Name: "ann", Team: "t", AllNamespaces: true}
		create := access.OfMethod(sandboxv1.Sandboxes_CreateSandbox_FullMethodName).Permission
		return principal.With(t.Context(), principal.Of(who, create, policy.Grant(who, create)))
	}
	other := func(r *sandboxv1.CreateSandboxRequest) { r.Env = "other" }
	f := newFederation(t, map[string]int32{"east": 1, "west": 1})
	check := func(what string, err error, want problem.Reason, hidden ...string) {
		t.Helper()
		workertest.WantReason(t, err, want)
		for _, name := range hidden {
			if strings.Contains(err.Error(), name) {
				t.Errorf("%s names %s: %v", what, name, err)
			}
		}
	}
	for _, key := range []string{"", "k"} {
		_, err := f.hub.Create(as("other"), workertest.Request(key, other))
		check("a create with the key '"+key+"'", err, problem.NotFound, "demo")
	}
	_, err := f.hub.Explain(as("other"), &sandboxv1.ExplainEnvRequest{Namespace: "default", Name: "other"})
	check("explain", err, problem.NotFound, "demo")
	for _, id := range []string{"east", "west"} {
		f.Report(id, &federationv1.EnvSegment{Key: &federationv1.EnvKey{Namespace: "default", Name: "demo"}, Named: "west,mars"})
	}
	_, err = f.hub.Create(as("demo"), workertest.Request(""))
	check("an Env without members", err, problem.Misconfigured, "mars")
	f.loseLedger()
	_, err = f.hub.Create(as("demo"), workertest.Request("k"))
	check("a recovery", err, problem.Recovering, "east")
}
