// SPDX-License-Identifier: Apache-2.0

package principal

import (
	"reflect"
	"slices"
	"sync"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
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
// is the caller's, and anything else as long as the caller may do the same. It may not be known that it may: see Unsure.
func (p Principal) Still(before Principal) bool {
	if before.met == nil {
		return p.Same(before)
	}
	before.met.mu.Lock()
	box, clusters := before.met.box, slices.Clone(before.met.clusters)
	before.met.mu.Unlock()
	if box == nil && len(clusters) == 0 {
		return before.ask != nil || p.Same(before) // one that asks is let to nothing without a note
	}
	return reflect.DeepEqual(endless(p.Identity), endless(before.Identity)) &&
		(box == nil || p.Look().Sees(box) && p.Sees(box)) &&
		!slices.ContainsFunc(clusters, func(id string) bool { return !p.SeesCluster(id) })
}
