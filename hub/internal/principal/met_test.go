// SPDX-License-Identifier: Apache-2.0

package principal

import (
	"errors"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
)

// A conversation goes on as long as its caller is the same and may have it with what it is with.
func TestStill(t *testing.T) {
	of := func(groups []string, grant access.Grant) Principal {
		return Of(&access.Identity{Name: "a", Team: "red", Groups: groups}, access.Proxy, grant)
	}
	on := func(clusters ...string) access.Grant {
		return access.Grant{Scopes: []access.Scope{{AllNamespaces: true, Whole: true, Clusters: clusters}}}
	}
	in := func(namespaces ...string) access.Grant {
		return access.Grant{Scopes: []access.Scope{{Namespaces: namespaces}}}
	}
	cluster, sandbox := of(nil, on("east")).Noting(), of(nil, in("n")).Noting()
	asked := of(nil, access.Grant{Ask: func(namespace string) (bool, error) { return namespace == "n", nil }}).Noting()
	if err := cluster.CheckCluster("east"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []Principal{sandbox, asked} {
		if err := p.Check(&sandboxv1.Sandbox{Namespace: "n", Team: "red"}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		now, before Principal
		want        bool
	}{
		"the same cluster":         {of(nil, on("east")), cluster, true},
		"one more cluster":         {of(nil, on("east", "west")), cluster, true},
		"another cluster":          {of(nil, on("west")), cluster, false},
		"other groups":             {of([]string{"g"}, on("east")), cluster, false},
		"one more namespace":       {of(nil, in("m", "n")), sandbox, true},
		"another namespace":        {of(nil, in("m")), sandbox, false},
		"who was asked has no say": {of(nil, in("m")), asked, false}, // while it is away see TestUnsure
		"nothing was met":          {of(nil, in("n")), of(nil, in("n")).Noting(), true},
		"nothing was met, other":   {of(nil, in("m")), of(nil, in("n")).Noting(), false},
		"a watch":                  {of(nil, in("n")), of(nil, in("n")), true},
		"a watch, more than it is": {of(nil, in("m", "n")), of(nil, in("n")), false},
	} {
		if got := c.now.Still(c.before); got != c.want {
			t.Errorf("%s: it goes on: %t", name, got)
		}
	}
}

// What a caller may do is not known while an Authorizer that could permit more cannot be asked, about everything or about a namespace.
func TestUnsure(t *testing.T) {
	away := errors.New("away")
	of := func(grant access.Grant) Principal { return Of(&access.Identity{Name: "a"}, access.Exec, grant) }
	sure := of(access.Grant{Scopes: []access.Scope{{Namespaces: []string{"n"}}}})
	partial := of(access.Grant{Scopes: []access.Scope{{Namespaces: []string{"n"}}}, Away: away})
	asked := of(access.Grant{Ask: func(string) (bool, error) { return false, away }})
	for name, c := range map[string]struct {
		p    Principal
		want bool
	}{
		"sure": {sure, false}, "partial": {partial, true}, "sees in part": {sure.Looking(partial), true}, "nothing was asked": {asked, false},
		"no credentials": {From(t.Context()), false},
	} {
		if got := c.p.Unsure(); got != c.want {
			t.Errorf("%s: what it may do is not known: %t", name, got)
		}
	}
	if asked.SeesNamespace("n"); !asked.Unsure() {
		t.Error("an Authorizer could not be asked, and what the caller may do is known")
	}
	if err := partial.Settle(false, nil); err != nil {
		t.Errorf("what others permit is refused: %v", err)
	}
}
