// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// Every method of the public API has a permission in the table, and the table has no other; make generate fails otherwise.
func TestEveryMethodHasAPermission(t *testing.T) {
	methods := map[string]bool{}
	protoregistry.GlobalFiles.RangeFilesByPackage("atoll.sandbox.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				methods["/"+string(service.FullName())+"/"+string(service.Methods().Get(j).Name())] = true
			}
		}
		return true
	})
	if len(methods) < 44 {
		t.Fatalf("found %d methods, want at least 44", len(methods))
	}
	for full := range methods {
		if m := OfMethod(full); m.Verb == "unknown" || m.Verb == "" {
			t.Errorf("%s needs %q", full, m.Permission)
		}
	}
	for full := range sandboxv1.MethodPermissions {
		if !methods[full] {
			t.Errorf("the table has %s, and there is no such method", full)
		}
	}
	if m := OfMethod("/atoll.sandbox.v1.Later/Unknown"); m.Reach != All || !Permits(builtInRole(Admin), m.Permission) ||
		Permits(builtInRole(Operator), m.Permission) {
		t.Errorf("a method that is not known needs %+v", m)
	}
}

// A permission that calls of several reaches need has the least of them, in whatever order they are read: what can-i denies, no call
// permits.
func TestAPermissionHasItsLeastReach(t *testing.T) {
	for range 50 { // of a map, whose order differs
		all := reaches()
		for p, want := range map[Permission]Reach{
			{Envs, "get"}: Own, {Templates, "get"}: Own, {Templates, "plan"}: All, {Envs, "update"}: Teams, Proxy: All,
		} {
			if all[p] != want {
				t.Fatalf("the reach of %s is %d, want %d", p, all[p], want)
			}
		}
		for full := range sandboxv1.MethodPermissions {
			if m := OfMethod(full); m.Reach < all[m.Permission] {
				t.Fatalf("the reach of %s is %d, and that of %s %d", m.Permission, all[m.Permission], full, m.Reach)
			}
		}
	}
	inN := &sandboxv1.AccessPolicy{Bindings: []*sandboxv1.RoleBinding{{
		Name: "b", Role: Viewer, Namespaces: []string{"n"}, Subjects: []*sandboxv1.Subject{{Kind: SubjectUser, Name: "ann"}},
	}}}
	ann := &Identity{Kind: KindOIDC, Name: "ann", User: "ann", AllNamespaces: true}
	for _, resource := range []string{Envs, Templates} {
		get := Permission{resource, "get"}
		reach, _ := ReachOf(get)
		if from, err := NewPolicy(inN).Grant(ann, get).Holds(Query{Permission: get}, reach); err != nil || from == "" {
			t.Errorf("a viewer in a namespace may not %s: %v", get, err)
		}
	}
}

// What the built-in roles permit. Each is listed, so that a change of a role shows.
func TestBuiltInRoles(t *testing.T) {
	const view = "check access, get claims, list claims, watch claims, get clusters, list clusters, get envs, list envs, " +
		"get hub, get quotas, " +
		"get sandboxes, list sandboxes, watch sandboxes, get templates, list templates"
	const use = ", create sandboxes, update sandboxes, delete sandboxes, delete claims, get sandboxes/log"
	for role, want := range map[string]string{
		Viewer: view, User: view + use, Developer: view + use + ", create sandboxes/exec, create sandboxes/ports",
		EnvEditor: view + ", update envs, delete envs, plan envs, refresh envs, update templates, delete templates, plan templates",
		Operator: view + ", drain clusters, create clusters, approve clusters, revoke clusters, update clusters, delete clusters, get pki, " +
			"rotate pki, plan envs, refresh envs, recover hub",
	} {
		wanted := strings.Split(want, ", ")
		for _, p := range Permissions() {
			if has := Permits(builtInRole(role), p); has != slices.Contains(wanted, p.String()) {
				t.Errorf("%s has the permission to %s: %t", role, p, has)
			}
		}
	}
	for _, p := range Permissions() {
		if !Permits(builtInRole(Admin), p) {
			t.Errorf("admin may not %s", p)
		}
	}
}

// Where a permission holds: by the roles of a key within its bounds, and by bindings.
func TestGrants(t *testing.T) {
	look := Permission{Sandboxes, "get"}
	drain := Permission{Clusters, "drain"}
	edit := Permission{Envs, "update"}
	accept := Permission{Hub, "recover"}
	bind := func(role string, namespaces []string, more func(*sandboxv1.RoleBinding)) *sandboxv1.RoleBinding {
		b := &sandboxv1.RoleBinding{Name: "b", Role: role, Namespaces: namespaces, Subjects: []*sandboxv1.Subject{
			{Kind: SubjectUser, Name: "ann"}, {Kind: SubjectGroup, Name: "ops"}, {Kind: SubjectKey, Name: "ci"}, {Kind: SubjectTeam, Name: "red"},
		}}
		if more != nil {
			more(b)
		}
		return b
	}
	envs := func(b *sandboxv1.RoleBinding) { b.Envs = []string{"n/py"} }
	east := func(b *sandboxv1.RoleBinding) { b.Clusters = []string{"east"} }
	inN, anywhere := bind(Viewer, []string{"n"}, nil), bind(Viewer, []string{"*"}, nil)
	lookN, lookAll, drainAll := Query{look, "n", "", ""}, Query{Permission: look}, Query{Permission: drain}
	ann := &Identity{Kind: KindOIDC, Name: "ann", User: "ann", AllNamespaces: true}
	for name, c := range map[string]struct {
		who     *Identity
		binding *sandboxv1.RoleBinding
		query   Query
		reach   Reach
		holds   bool
	}{
		"a user":                    {ann, inN, lookN, Own, true},
		"elsewhere":                 {ann, inN, Query{look, "m", "", ""}, Own, false},
		"a group":                   {&Identity{Groups: []string{"ops"}, AllNamespaces: true}, inN, lookN, Own, true},
		"a key":                     {&Identity{Key: "ci"}, inN, lookN, Own, true},
		"a key within its own":      {&Identity{Key: "ci", Namespaces: []string{"m"}}, anywhere, lookN, Own, false},
		"a team":                    {&Identity{Team: "red", AllNamespaces: true}, anywhere, lookN, Own, true},
		"another":                   {&Identity{User: "bob", Key: "ann", Team: "ops", Groups: []string{"red"}}, anywhere, lookAll, Own, false},
		"a user named like a team":  {&Identity{User: "red"}, anywhere, lookAll, Own, false},
		"an Env":                    {ann, bind(Viewer, []string{"n"}, envs), Query{look, "n", "py", ""}, Own, true},
		"another Env":               {ann, bind(Viewer, []string{"n"}, envs), Query{look, "n", "go", ""}, Own, false},
		"a cluster":                 {ann, bind(Viewer, []string{"n"}, east), Query{look, "n", "", "east"}, Own, true},
		"another cluster":           {ann, bind(Viewer, []string{"n"}, east), Query{look, "n", "", "west"}, Own, false},
		"another verb":              {ann, anywhere, Query{Exec, "n", "", ""}, Own, false},
		"the hub":                   {ann, bind(Operator, []string{"*"}, nil), Query{drain, "", "", "east"}, All, true},
		"the hub, in a namespace":   {ann, bind(Operator, []string{"n"}, nil), Query{drain, "", "", "east"}, All, false},
		"the hub, a cluster":        {ann, bind(Operator, []string{"*"}, east), Query{drain, "", "", "east"}, All, true},
		"the hub, another cluster":  {ann, bind(Operator, []string{"*"}, east), Query{drain, "", "", "west"}, All, false},
		"clusters/proxy":            {ann, bind(Admin, []string{"*"}, east), Query{Proxy, "", "", "east"}, All, true},
		"all of the hub, a cluster": {ann, bind(Operator, []string{"*"}, east), Query{Permission: accept}, All, false},
		"the same, asked for it":    {ann, bind(Operator, []string{"*"}, east), Query{accept, "", "", "east"}, All, false},
		"all of the hub":            {ann, bind(Operator, []string{"*"}, nil), Query{Permission: accept}, All, true},
		"every team's Env":          {ann, bind(EnvEditor, []string{"n"}, nil), Query{edit, "n", "py", ""}, Teams, true},
		"no such role":              {ann, bind("gone", []string{"*"}, nil), lookN, Own, false},
		"its own access":            {&Identity{User: "bob"}, inN, Query{check, "", "", ""}, Own, false},
		"own roles, no namespaces":  {&Identity{Roles: []string{Admin}}, inN, lookN, Own, false},
		"own roles, a team's admin": {&Identity{Roles: []string{Admin}, Team: "t", AllNamespaces: true}, inN, drainAll, All, false},
		"own roles, all":            {&Identity{Roles: []string{Admin}, AllTeams: true, AllNamespaces: true}, inN, drainAll, All, true},
		"own roles, all of one user": {
			&Identity{Roles: []string{Admin}, AllTeams: true, TenantUser: "u", AllNamespaces: true}, inN,
			Query{edit, "n", "", ""}, Teams, false,
		},
	} {
		policy := NewPolicy(&sandboxv1.AccessPolicy{Bindings: []*sandboxv1.RoleBinding{c.binding}})
		if from, err := policy.Grant(c.who, c.query.Permission).Holds(c.query, c.reach); err != nil || (from != "") != c.holds {
			t.Errorf("%s: %q, want it to hold: %t", name, from, c.holds)
		}
		if c.who != ann {
			continue
		}
		if who := policy.Who(c.query, c.reach); (len(who) == 4) != c.holds {
			t.Errorf("%s: who may are %v", name, who)
		}
	}
	if g := NewPolicy(nil).Grant(&Identity{}, check); g.Empty() {
		t.Error("a caller without roles may not check its own access")
	}
}
