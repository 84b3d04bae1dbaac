// SPDX-License-Identifier: Apache-2.0

package access

import (
	"cmp"
	"context"
	"slices"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// The kinds of subjects.
const (
	SubjectUser  = "User"
	SubjectGroup = "Group"
	SubjectKey   = "Key"
	SubjectTeam  = "Team"
)

// Policy is a compiled, immutable set of roles and bindings. The nil Policy has the built-in roles and no bindings.
type Policy struct {
	roles map[string]*sandboxv1.Role
	// bindings are indexed by subject, so that those of a caller are found without reading all.
	bindings map[subject][]*sandboxv1.RoleBinding
	order    []*sandboxv1.RoleBinding
}

type subject struct{ kind, name string }

// NewPolicy compiles a policy that has passed Validate. A binding to a missing role permits nothing.
func NewPolicy(in *sandboxv1.AccessPolicy) *Policy {
	p := &Policy{roles: map[string]*sandboxv1.Role{}, bindings: map[subject][]*sandboxv1.RoleBinding{}, order: in.GetBindings()}
	for _, r := range in.GetRoles() {
		p.roles[r.GetName()] = r
	}
	for _, b := range in.GetBindings() {
		for _, s := range b.GetSubjects() {
			key := subject{s.GetKind(), s.GetName()}
			p.bindings[key] = append(p.bindings[key], b)
		}
	}
	return p
}

// Role returns a role, or nil if there is none.
func (p *Policy) Role(name string) *sandboxv1.Role {
	if r := builtInRole(name); r != nil || p == nil {
		return r
	}
	return p.roles[name]
}

// Authorize implements Authorizer.
func (p *Policy) Authorize(_ context.Context, who *Identity, wanted Permission) (Grant, error) {
	return p.Grant(who, wanted), nil
}

// Grant returns where an identity has a permission, according to the policy.
func (p *Policy) Grant(who *Identity, wanted Permission) Grant {
	var out Grant
	for _, name := range who.Roles {
		if role := p.Role(name); role != nil && Permits(role, wanted) {
			out.Scopes = append(out.Scopes, ownScope(who, name))
		}
	}
	for _, b := range p.boundTo(who) {
		if role := p.Role(b.GetRole()); role != nil && Permits(role, wanted) {
			if s, ok := within(who, bindingScope(b, wanted)); ok {
				out.Scopes = append(out.Scopes, s)
			}
		}
	}
	if wanted == check && out.Empty() {
		out.Scopes = []Scope{{From: "every caller"}}
	}
	return out
}

// boundTo returns the bindings of an identity, each once, in the order of SubjectsOf.
func (p *Policy) boundTo(who *Identity) (out []*sandboxv1.RoleBinding) {
	if p == nil {
		return nil
	}
	for _, s := range SubjectsOf(who) {
		for _, b := range p.bindings[subject{s.GetKind(), s.GetName()}] {
			if !slices.Contains(out, b) {
				out = append(out, b)
			}
		}
	}
	return out
}

// SubjectsOf returns the subjects by which a binding may name an identity. A key for all teams, and a key without a team, have no team
// subject.
func SubjectsOf(who *Identity) (out []*sandboxv1.Subject) {
	add := func(kind, name string) {
		if name != "" {
			out = append(out, &sandboxv1.Subject{Kind: kind, Name: name})
		}
	}
	add(SubjectKey, who.Key)
	add(SubjectUser, who.User)
	for _, g := range who.Groups {
		add(SubjectGroup, g)
	}
	add(SubjectTeam, who.Team)
	return out
}

// ownScope returns where an identity's own roles hold.
func ownScope(who *Identity, role string) Scope {
	return Scope{
		Namespaces: who.Namespaces, AllNamespaces: who.AllNamespaces, AllTeams: who.AllTeams, Whole: who.Unbound(),
		Shared: who.AllTeams && who.TenantUser == "", From: "role " + role + " of " + string(who.Kind) + " " + who.Name,
	}
}

// bindingScope returns where a binding grants a permission.
func bindingScope(b *sandboxv1.RoleBinding, wanted Permission) Scope {
	s := Scope{
		Namespaces: b.GetNamespaces(), AllNamespaces: slices.Contains(b.GetNamespaces(), all), Envs: b.GetEnvs(), Clusters: b.GetClusters(),
		AllTeams: b.GetAllTeams(), Shared: true, From: "binding " + b.GetName(),
	}
	if s.AllNamespaces {
		s.Namespaces = nil
	}
	s.Whole = s.AllNamespaces && len(s.Envs) == 0 && (len(s.Clusters) == 0 || wanted.ofCluster())
	return s
}

// within narrows a binding's scope to an identity's own namespaces. It returns false if nothing is left. A scope with limited namespaces
// never reaches every caller.
func within(who *Identity, s Scope) (Scope, bool) {
	s.AllTeams = s.AllTeams && who.TenantUser == "" || who.AllTeams
	if who.AllNamespaces || len(who.Namespaces) == 0 {
		return s, true
	}
	s.Whole = false
	if s.AllNamespaces {
		s.AllNamespaces, s.Namespaces = false, who.Namespaces
	} else {
		s.Namespaces = slices.DeleteFunc(slices.Clone(s.Namespaces), func(n string) bool { return !slices.Contains(who.Namespaces, n) })
	}
	return s, len(s.Namespaces) > 0
}

// Query asks about a permission of one subject in one place. Empty fields mean any place.
type Query struct {
	Permission
	Namespace, Env, Cluster string
}

// Holds returns the origin of the permission that a query asks for, or "" if it is not granted. It returns an error if that cannot be
// determined now.
func (g Grant) Holds(q Query, r Reach) (string, error) {
	part := g.For(r)
	for i := range part.Scopes {
		s := &part.Scopes[i]
		switch {
		case q.Namespace != "" && q.Env != "" && !s.Env(q.Namespace, q.Env), q.Namespace != "" && !s.Namespace(q.Namespace),
			q.Cluster != "" && !s.Cluster(q.Cluster), q.Namespace == "" && r != All && !s.AllNamespaces && len(s.Namespaces) == 0:
			continue
		}
		return s.From, nil
	}
	if part.Ask == nil || q.Namespace == "" {
		return "", part.Away
	}
	if held, err := part.Ask(q.Namespace); err != nil || !held {
		return "", cmp.Or(err, part.Away)
	}
	return "the cluster's RBAC", nil
}

// Who returns the subjects whose bindings grant the permission of a query, in order.
func (p *Policy) Who(q Query, r Reach) (out []*sandboxv1.Subject) {
	if p == nil {
		return nil
	}
	seen := map[subject]bool{}
	for _, b := range p.order {
		role := p.Role(b.GetRole())
		if role == nil || !Permits(role, q.Permission) {
			continue
		}
		if from, _ := (Grant{Scopes: []Scope{bindingScope(b, q.Permission)}}).Holds(q, r); from == "" { // scopes need no Authorizer
			continue
		}
		for _, s := range b.GetSubjects() {
			if key := (subject{s.GetKind(), s.GetName()}); !seen[key] {
				seen[key] = true
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, CompareSubjects)
	return out
}

// CompareSubjects orders by kind, then by name.
func CompareSubjects(a, b *sandboxv1.Subject) int {
	return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetName(), b.GetName()))
}
