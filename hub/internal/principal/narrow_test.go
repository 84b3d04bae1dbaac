// SPDX-License-Identifier: Apache-2.0

package principal

import (
	"math"
	"slices"
	"strings"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
)

// Bindings narrow a caller to Envs and clusters, and to its own team where they do not say otherwise.
func TestBindingsNarrow(t *testing.T) {
	policy := access.NewPolicy(&sandboxv1.AccessPolicy{Bindings: []*sandboxv1.RoleBinding{
		{Name: "py", Role: access.User, Namespaces: []string{"a"}, Envs: []string{"a/py"}, Clusters: []string{"east", "west"},
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectUser, Name: "ann"}}},
		{Name: "all", Role: access.Viewer, Namespaces: []string{"b"}, AllTeams: true,
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectUser, Name: "ann"}}},
	}})
	ann := &access.Identity{Kind: access.KindOIDC, Name: "ann", User: "ann", Team: "red", AllNamespaces: true}
	of := func(verb string) Principal {
		p := access.Permission{Resource: access.Sandboxes, Verb: verb}
		return Of(ann, p, policy.Grant(ann, p))
	}
	create, look := of("create"), of("get")
	for name, c := range map[string]struct {
		p    Principal
		s    *sandboxv1.Sandbox
		sees bool
	}{
		"its Env":           {look, &sandboxv1.Sandbox{Namespace: "a", Env: "py", ClusterId: "east", Team: "red"}, true},
		"another Env":       {look, &sandboxv1.Sandbox{Namespace: "a", Env: "go", ClusterId: "east", Team: "red"}, false},
		"another cluster":   {look, &sandboxv1.Sandbox{Namespace: "a", Env: "py", ClusterId: "north", Team: "red"}, false},
		"another team":      {look, &sandboxv1.Sandbox{Namespace: "a", Env: "py", ClusterId: "east", Team: "blue"}, false},
		"every team":        {look, &sandboxv1.Sandbox{Namespace: "b", Env: "go", ClusterId: "north", Team: "blue"}, true},
		"another namespace": {look, &sandboxv1.Sandbox{Namespace: "c", Env: "py", ClusterId: "east", Team: "red"}, false},
		"may create":        {create, &sandboxv1.Sandbox{Namespace: "a", Env: "py", ClusterId: "west", Team: "red"}, true},
		"may only look":     {create, &sandboxv1.Sandbox{Namespace: "b", Env: "go", ClusterId: "east", Team: "red"}, false},
	} {
		if c.p.Sees(c.s) != c.sees {
			t.Errorf("%s: sees it: %t", name, !c.sees)
		}
	}
	if got := create.Clusters("red", "a", "py"); !slices.Equal(got, []string{"east", "west"}) {
		t.Errorf("its claims may go to %v", got)
	}
	for at, want := range map[[3]string]string{
		{"red", "a", "py"}: "", {"red", "a", "go"}: "Env a/go is not open to you: you lack the permission to create sandboxes there",
		{"red", "b", "py"}: `namespace: "b" is not open`, {"blue", "a", "py"}: `team "blue" in namespace a is not open`,
	} {
		if err := create.CheckClaim(at[0], at[1], at[2]); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a claim of %v: %v, want %q", at, err, want)
		}
	}
	if team, err := create.OwnTeam(""); team != "red" || err != nil {
		t.Errorf("a claim that names no team is of %q, %v", team, err)
	}
	if team, err := look.ListedTeam(""); team != "" || err != nil {
		t.Errorf("a list that names no team is of %q, %v", team, err)
	}
	if !look.Restricted() || !look.SeesCluster("north") || create.SeesCluster("north") {
		t.Error("what the caller may not see is not held back")
	}
}

// The numbers of what a caller sees of an Env do not wrap around, whatever clusters report.
func TestNumbersOfAnEnvSaturate(t *testing.T) {
	policy := access.NewPolicy(&sandboxv1.AccessPolicy{Bindings: []*sandboxv1.RoleBinding{{
		Name: "py", Role: access.Viewer, Namespaces: []string{"a"}, Envs: []string{"a/py"}, Clusters: []string{"east", "west"},
		Subjects: []*sandboxv1.Subject{{Kind: access.SubjectUser, Name: "ann"}},
	}}})
	ann := &access.Identity{Kind: access.KindOIDC, Name: "ann", User: "ann", Team: "red", AllNamespaces: true}
	get := access.Permission{Resource: access.Sandboxes, Verb: "get"}
	env := &sandboxv1.Env{Namespace: "a", Name: "py"}
	for _, id := range []string{"east", "north", "west"} {
		env.Clusters = append(env.Clusters, &sandboxv1.EnvCluster{ClusterId: id, Members: []*sandboxv1.EnvMember{
			{Idle: math.MaxInt32, Running: math.MaxInt32, Desired: math.MaxInt32, Pending: math.MaxInt32},
		}})
	}
	Of(ann, get, policy.Grant(ann, get)).ShowEnv(env)
	if len(env.GetClusters()) != 2 || env.GetIdle() != math.MaxInt32 || env.GetRunning() != math.MaxInt32 ||
		env.GetDesired() != math.MaxInt32 || env.GetPending() != math.MaxInt32 {
		t.Errorf("the caller sees %v", env)
	}
}
