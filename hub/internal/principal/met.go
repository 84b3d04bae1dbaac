// SPDX-License-Identifier: Apache-2.0

package principal

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
)

// met is what a caller was let to in a conversation: one sandbox, or one cluster. The copies of a Principal share it.
type met struct {
	mu       sync.Mutex
	box      *sandboxv1.Sandbox // where it is and whose it is; nil: none
	clusters []string
}

func (m *met) sandbox(s *sandboxv1.Sandbox) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.box = &sandboxv1.Sandbox{
		Namespace: s.GetNamespace(), Env: s.GetEnv(), ClusterId: s.GetClusterId(), Team: s.GetTeam(), User: s.GetUser(),
	}
}

func (m *met) cluster(id string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.clusters, id) {
		m.clusters = append(m.clusters, id)
	}
}

// Noting returns the principal of a conversation: what it is let to is noted, for Still.
func (p Principal) Noting() Principal {
	p.met = &met{}
	return p
}

// Still reports whether the caller, who is p now, may go on with what it began as before. A conversation may as long as what it is with
// is the caller's; without a note that may be all that before covers. Anything else may as long as the caller may do the same.
func (p Principal) Still(before Principal) bool {
	if before.met == nil {
		return p.Same(before)
	}
	before.met.mu.Lock()
	box, clusters := before.met.box, slices.Clone(before.met.clusters)
	before.met.mu.Unlock()
	switch {
	case box == nil && len(clusters) == 0 && before.ask != nil:
		return true // one that asks is let to nothing without a note
	case !reflect.DeepEqual(unbound(p.Identity), unbound(before.Identity)):
		return false
	case box == nil && len(clusters) == 0:
		return p.covers(before) && p.Look().covers(before.Look())
	case len(clusters) > 0 && p.Team != before.Team:
		return false // a cluster knows the caller by its team as well
	}
	return (box == nil || p.Look().Sees(box) && p.Sees(box)) &&
		!slices.ContainsFunc(clusters, func(id string) bool { return !p.SeesCluster(id) })
}

// unbound returns who an identity is, without what says where it may do something, which is in the Principal, and when it ends.
func unbound(who *access.Identity) *access.Identity {
	out := endless(who)
	if out != nil {
		out.Team, out.AllTeams, out.TenantUser, out.Namespaces, out.AllNamespaces, out.Roles = "", false, "", nil, false, nil
	}
	return out
}

// covers reports whether the permission holds wherever that of other does, as far as can be told without asking.
func (p Principal) covers(other Principal) bool {
	own := p.scopes()
	lacks := func(o access.Scope) bool {
		return !slices.ContainsFunc(own, func(s access.Scope) bool {
			return s.Covers(&o) && (s.AllTeams || !o.AllTeams && p.Team == other.Team)
		})
	}
	for _, o := range other.scopes() {
		if lacks(o) && slices.ContainsFunc(divided(o), lacks) {
			return false
		}
	}
	return p.User == "" || p.User == other.User
}

// divided returns the scopes of one namespace or Env, on one cluster, that a scope consists of; because each may be in another one now.
func divided(s access.Scope) (out []access.Scope) {
	add := func(namespaces, envs []string) {
		one := s
		one.AllNamespaces, one.Namespaces, one.Envs = namespaces == nil, namespaces, envs
		if len(s.Clusters) == 0 {
			out = append(out, one)
		}
		for _, id := range s.Clusters {
			one.Clusters = []string{id}
			out = append(out, one)
		}
	}
	for _, env := range s.Envs {
		if namespace, _, _ := strings.Cut(env, "/"); s.Namespace(namespace) {
			add([]string{namespace}, []string{env})
		}
	}
	switch {
	case len(s.Envs) > 0:
	case s.AllNamespaces:
		add(nil, nil)
	default:
		for _, namespace := range s.Namespaces {
			add([]string{namespace}, nil)
		}
	}
	return out
}

// scopes are where the permission holds, as far as can be told without asking.
func (p Principal) scopes() []access.Scope {
	if p.narrow != nil {
		return p.narrow
	}
	return []access.Scope{{Namespaces: p.Namespaces, AllNamespaces: p.AllNamespaces, AllTeams: p.AllTeams}}
}
