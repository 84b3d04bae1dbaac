// SPDX-License-Identifier: Apache-2.0

package principal

import (
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// A caller sees only what its key names: an empty team or an empty list of namespaces does not mean all of them.
func TestNothingIsLeftOpen(t *testing.T) {
	teamless := &sandboxv1.Sandbox{Namespace: "n"}
	red := &sandboxv1.Sandbox{Namespace: "n", Team: "red", User: "ann"}
	for name, c := range map[string]struct {
		p                           Principal
		restricted, teamless, red   bool
		team                        string // of a request without one
		names, namesNone, namespace bool   // it may name red; no team; n
	}{
		"nothing":             {Principal{}, true, false, false, "", false, true, false},
		"a namespace":         {Principal{Namespaces: []string{"n"}}, true, true, false, "", false, true, true},
		"a team":              {Principal{Team: "red"}, true, false, false, "red", true, true, false},
		"a team somewhere":    {Principal{Team: "red", Namespaces: []string{"n"}}, true, false, true, "red", true, true, true},
		"another's namespace": {Principal{AllTeams: true, Namespaces: []string{"m"}}, true, false, false, "", true, true, false},
		"a user":              {Principal{AllTeams: true, User: "bob", AllNamespaces: true}, true, false, false, "", true, true, true},
		"all":                 {Principal{AllTeams: true, AllNamespaces: true}, false, true, true, "", true, true, true},
		"no credentials":      {From(t.Context()), false, true, true, "", true, true, true},
	} {
		if c.p.Restricted() != c.restricted || c.p.Sees(teamless) != c.teamless || c.p.Sees(red) != c.red {
			t.Errorf("%s: restricted %t, sees what has no team %t, what is red %t", name, c.p.Restricted(), c.p.Sees(teamless), c.p.Sees(red))
		}
		if team, err := c.p.OwnTeam(""); team != c.team || (err == nil) != c.namesNone {
			t.Errorf("%s: naming no team is %q, %v", name, team, err)
		}
		if team, err := c.p.OwnTeam("red"); (err == nil && team == "red") != c.names {
			t.Errorf("%s: naming red is %q, %v", name, team, err)
		}
		if err := c.p.CheckNamespace("n"); (err == nil) != c.namespace || err != nil && problem.FromError(err).Reason != problem.Forbidden {
			t.Errorf("%s: naming the namespace n: %v", name, err)
		}
	}
}

func TestNoneSeesNothing(t *testing.T) {
	p, sandbox := None(), &sandboxv1.Sandbox{Namespace: "n"}
	if p.SeesNamespace("n") || p.SeesEnv("n", "e") || p.SeesCluster("north") || p.Sees(sandbox) || !p.Restricted() {
		t.Error("it sees something")
	}
}
