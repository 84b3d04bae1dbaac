// SPDX-License-Identifier: Apache-2.0

package principal

import (
	"errors"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
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
	cluster, sandbox := of(nil, on("east")).WithReached(), of(nil, in("n")).WithReached()
	asked := of(nil, access.Grant{Ask: func(namespace string) (bool, error) { return namespace == "n", nil }}).WithReached()
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
		"the same cluster":           {of(nil, on("east")), cluster, true},
		"one more cluster":           {of(nil, on("east", "west")), cluster, true},
		"another cluster":            {of(nil, on("west")), cluster, false},
		"other groups":               {of([]string{"g"}, on("east")), cluster, false},
		"one more namespace":         {of(nil, in("m", "n")), sandbox, true},
		"another namespace":          {of(nil, in("m")), sandbox, false},
		"who was asked has no say":   {of(nil, in("m")), asked, false},
		"nothing was reached":        {of(nil, in("n")), of(nil, in("n")).WithReached(), true},
		"nothing was reached, other": {of(nil, in("m")), of(nil, in("n")).WithReached(), false},
		"a watch":                    {of(nil, in("n")), of(nil, in("n")), true},
		"a watch, more than it is":   {of(nil, in("m", "n")), of(nil, in("n")), false},
	} {
		if got := c.now.MayContinue(c.before); got != c.want {
			t.Errorf("%s: it goes on: %t", name, got)
		}
	}
}

// A conversation goes on with more than its caller had, whether a sandbox or a cluster is noted of it, or nothing is, as of one on a
// connection of an earlier request. It ends with less.
func TestStillWithMore(t *testing.T) {
	who := access.Identity{Name: "k", Key: "k", Team: "red", Namespaces: []string{"n"}, Roles: []string{access.Developer}}
	scope := access.Scope{Namespaces: []string{"n"}}
	narrow := access.Scope{Namespaces: []string{"n"}, Envs: []string{"n/py"}, Clusters: []string{"east"}}
	every := access.Scope{Namespaces: []string{"n"}, AllTeams: true}
	blue := func(i *access.Identity) { i.Team = "blue" }
	of := func(change func(*access.Identity), scopes ...access.Scope) Principal {
		now := who
		if change != nil {
			change(&now)
		}
		return Of(&now, access.Exec, access.Grant{Scopes: scopes})
	}
	for name, c := range map[string]struct {
		now  Principal
		want bool
	}{
		"a wider role":                   {of(func(i *access.Identity) { i.Roles = []string{access.Admin} }, scope, narrow), true},
		"one more namespace":             {of(func(i *access.Identity) { i.Namespaces = []string{"m", "n"} }, scope, narrow), true},
		"all namespaces":                 {of(nil, access.Scope{AllNamespaces: true}), true},
		"all teams":                      {of(func(i *access.Identity) { i.AllTeams = true }, every), true},
		"one more Env":                   {of(nil, narrow, access.Scope{Namespaces: []string{"n"}, Envs: []string{"n/go"}}, scope), true},
		"another namespace":              {of(nil, access.Scope{Namespaces: []string{"m"}}), false},
		"another cluster":                {of(nil, access.Scope{Namespaces: []string{"n"}, Clusters: []string{"west"}}), false},
		"another Env":                    {of(nil, access.Scope{Namespaces: []string{"n"}, Envs: []string{"n/go"}}), false},
		"another team":                   {of(blue, scope), false},
		"another team, and those of all": {of(blue, every), true},
		"one user":                       {of(func(i *access.Identity) { i.TenantUser = "ann" }, scope), false},
		"another key":                    {of(func(i *access.Identity) { i.Name, i.Key = "other", "other" }, scope), false},
	} {
		reached, unreached := of(nil, scope).WithReached(), of(nil, scope).WithReached()
		if err := reached.Check(&sandboxv1.Sandbox{Namespace: "n", Env: "py", ClusterId: "east", Team: "red"}); err != nil {
			t.Fatal(err)
		}
		if got := c.now.MayContinue(reached); got != c.want {
			t.Errorf("%s: with a sandbox it goes on: %t", name, got)
		}
		if got := c.now.MayContinue(unreached); got != c.want {
			t.Errorf("%s: without a note it goes on: %t", name, got)
		}
	}
	one, both := of(nil, narrow).WithReached(), of(nil, scope, access.Scope{Namespaces: []string{"m"}}).WithReached()
	if !of(nil, scope).MayContinue(one) || !of(nil, narrow, access.Scope{Namespaces: []string{"m"}}).MayContinue(one) {
		t.Error("one that is bound to an Env and a cluster ends with more")
	}
	if of(nil, scope).MayContinue(both) || !of(nil, scope, access.Scope{Namespaces: []string{"m"}}, narrow).MayContinue(both) {
		t.Error("one with two namespaces goes on with one of them, or ends with an Env more")
	}
	many := access.Scope{Namespaces: []string{"m", "n"}, Envs: []string{"m/go", "n/py", "o/x"}, Clusters: []string{"east", "west"}}
	part := func(namespace, env string, clusters ...string) access.Scope {
		return access.Scope{Namespaces: []string{namespace}, Envs: []string{namespace + "/" + env}, Clusters: clusters}
	}
	split := []access.Scope{part("n", "py", "east"), part("n", "py", "west"), part("m", "go", "east", "west")}
	if !of(nil, split...).MayContinue(of(nil, many).WithReached()) || of(nil, split[1:]...).MayContinue(of(nil, many).WithReached()) {
		t.Error("one with several Envs and clusters ends once each is in a scope of its own, or goes on without one of them")
	}
	cluster := of(nil, access.Scope{AllNamespaces: true, Whole: true}).WithReached()
	if err := cluster.CheckCluster("east"); err != nil {
		t.Fatal(err)
	}
	wider := func(i *access.Identity) { i.Roles, i.AllNamespaces = []string{access.Admin}, true }
	if !of(wider, access.Scope{AllNamespaces: true, AllTeams: true, Whole: true}).MayContinue(cluster) {
		t.Error("one with a cluster ends with more")
	}
	if of(blue, access.Scope{AllNamespaces: true, AllTeams: true, Whole: true}).MayContinue(cluster) {
		t.Error("one with a cluster, which knows teams as groups, goes on for another team")
	}
}

// While an Authorizer is away, what a caller is refused is not known, and what others permit is done and read. Where namespaces are asked
// about, what was read is not known either.
func TestSettle(t *testing.T) {
	away := errors.New("away")
	refused, missing := problem.New(problem.Forbidden, "no"), problem.New(problem.NotFound, "none")
	other := problem.New(problem.Invalid, "wrong")
	of := func(grant access.Grant) Principal { return Of(&access.Identity{Name: "a"}, access.Exec, grant) }
	scopes := []access.Scope{{Namespaces: []string{"n"}}}
	sure, part := of(access.Grant{Scopes: scopes}), of(access.Grant{Scopes: scopes, Away: away})
	asked := of(access.Grant{Ask: func(string) (bool, error) { return false, away }})
	asked.SeesNamespace("n")
	for name, c := range map[string]struct {
		p       Principal
		changes bool
		err     error
		want    error
	}{
		"all are asked, refused":        {sure, true, refused, refused},
		"one is away, refused":          {part, true, refused, away},
		"one is away, missing":          {part, false, missing, away},
		"away for who may see, refused": {sure.WithSeeing(part), true, refused, away},
		"one is away, wrong":            {part, true, other, other},
		"one is away, changed":          {part, true, nil, nil},
		"one is away, read":             {part, false, nil, nil},
		"a namespace, read":             {asked, false, nil, away},
		"a namespace, changed":          {asked, true, nil, nil},
	} {
		if got := c.p.Settle(c.changes, c.err); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
