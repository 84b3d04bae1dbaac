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

// reached records what a caller reached in a conversation: one sandbox, or one cluster. The copies of a Principal share it.
type reached struct {
	mu       sync.Mutex
	box      *sandboxv1.Sandbox // its place, team and user; nil: none
	clusters []string
}

func (m *reached) sandbox(s *sandboxv1.Sandbox) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.box = &sandboxv1.Sandbox{
		Namespace: s.GetNamespace(), Env: s.GetEnv(), ClusterId: s.GetClusterId(), Team: s.GetTeam(), User: s.GetUser(),
	}
}

func (m *reached) cluster(id string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.clusters, id) {
		m.clusters = append(m.clusters, id)
	}
}

// WithReached returns the principal of a conversation, which records for MayContinue what the caller reaches.
func (p Principal) WithReached() Principal {
	p.reached = &reached{}
	return p
}

// MayContinue reports whether a caller, whose principal is now p, may continue what it began as before. A conversation may continue while
// its sandbox or cluster is the caller's. If nothing was recorded, everything that before covers must still be permitted. Other calls may
// continue while the caller has the same permissions.
func (p Principal) MayContinue(before Principal) bool {
	if before.reached == nil {
		return p.Same(before)
	}
	before.reached.mu.Lock()
	box, clusters := before.reached.box, slices.Clone(before.reached.clusters)
	before.reached.mu.Unlock()
	switch {
	case box == nil && len(clusters) == 0 && before.ask != nil:
		return true // a principal that asks an Authorizer reaches nothing without a record
	case !reflect.DeepEqual(unbound(p.Identity), unbound(before.Identity)):
		return false
	case box == nil && len(clusters) == 0:
		return p.covers(before) && p.Seeing().covers(before.Seeing())
	case len(clusters) > 0 && p.Team != before.Team:
		return false // a cluster knows the caller by its team as well
	}
	return (box == nil || p.Seeing().Sees(box) && p.Sees(box)) &&
		!slices.ContainsFunc(clusters, func(id string) bool { return !p.SeesCluster(id) })
}

// unbound returns an identity without its expiry and without the fields that say where it may act, which the Principal has.
func unbound(who *access.Identity) *access.Identity {
	out := endless(who)
	if out != nil {
		out.Team, out.AllTeams, out.TenantUser, out.Namespaces, out.AllNamespaces, out.Roles = "", false, "", nil, false, nil
	}
	return out
}

// covers reports whether p's permission holds wherever other's does, as far as is known without asking an Authorizer.
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

// divided splits a scope into scopes of one namespace or Env on one cluster; because each of these may be in another scope now.
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

// scopes returns where the permission holds, as far as is known without asking an Authorizer.
func (p Principal) scopes() []access.Scope {
	if p.narrow != nil {
		return p.narrow
	}
	return []access.Scope{{Namespaces: p.Namespaces, AllNamespaces: p.AllNamespaces, AllTeams: p.AllTeams}}
}
