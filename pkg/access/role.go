// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// The built-in roles.
const (
	Viewer    = "viewer"     // sees all objects, but not the content of sandboxes
	User      = "user"       // viewer, and claims sandboxes and reads their logs
	Developer = "developer"  // user, and runs commands in sandboxes and reaches their ports
	EnvEditor = "env-editor" // viewer, and changes Envs and templates
	Operator  = "operator"   // viewer, and operates clusters and the hub; not backups, keys and access, which would give everything
	Admin     = "admin"      // everything
)

// all matches every verb or resource in a rule.
const all = "*"

// builtIn are the built-in roles, in display order.
var builtIn = func() []*sandboxv1.Role {
	rule := func(verbs []string, resources ...string) *sandboxv1.Rule {
		return &sandboxv1.Rule{Resources: resources, Verbs: verbs}
	}
	view := []*sandboxv1.Rule{
		rule([]string{"get", "list", "watch"}, Sandboxes, Envs, Templates, Clusters, Claims),
		rule([]string{"get"}, Hub, Quotas),
	}
	use := append(slices.Clone(view),
		rule([]string{"create", "update", "delete"}, Sandboxes), rule([]string{"delete"}, Claims), rule([]string{"get"}, SandboxesLog))
	roles := []*sandboxv1.Role{
		{Name: Viewer, Rules: view},
		{Name: User, Rules: use},
		{Name: Developer, Rules: append(slices.Clone(use), rule([]string{"create"}, SandboxesExec, SandboxesPort))},
		{Name: EnvEditor, Rules: append(slices.Clone(view), rule([]string{"update", "delete", "plan", "refresh"}, Envs, Templates))},
		{Name: Operator, Rules: append(slices.Clone(view),
			rule([]string{all}, Clusters, Pki), rule([]string{"plan", "refresh"}, Envs), rule([]string{"recover"}, Hub))},
		{Name: Admin, Rules: []*sandboxv1.Rule{rule([]string{all}, all)}},
	}
	for _, r := range roles {
		r.BuiltIn = true
	}
	return roles
}()

// BuiltIn returns the built-in roles. The caller must not modify them.
func BuiltIn() []*sandboxv1.Role { return builtIn }

func builtInRole(name string) *sandboxv1.Role {
	if i := slices.IndexFunc(builtIn, func(r *sandboxv1.Role) bool { return r.GetName() == name }); i >= 0 {
		return builtIn[i]
	}
	return nil
}

// Permits reports whether a role has a permission. Every role has the permission to check its own access.
func Permits(role *sandboxv1.Role, p Permission) bool {
	has := func(list []string, one string) bool { return slices.Contains(list, one) || slices.Contains(list, all) }
	return p == check || slices.ContainsFunc(role.GetRules(), func(r *sandboxv1.Rule) bool {
		return has(r.GetResources(), p.Resource) && has(r.GetVerbs(), p.Verb)
	})
}
