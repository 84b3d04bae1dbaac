// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/memory"
)

// shared is the state that the inventory's lock guards.
type shared struct {
	queues  map[types.NamespacedName]*queue
	ops     map[string]*op                                                     // by key hash
	refused *memory.Map[refusal]                                               // by key hash
	unclear *memory.Map[string]                                                // sandbox id of the last unclear write, by key hash
	outlook func(types.NamespacedName) (canGrow bool, saturated time.Duration) // nil if no pool grows
	onQueue []func(types.NamespacedName)

	lateWrites uint64              // see LateWrites
	unjudged   map[string]struct{} // late writes that appeared while the lease had lapsed, by sandbox id
}

// locked is the service with the inventory's lock held.
type locked struct {
	*inventory.State
	*shared
	*Service
}

func (s *Service) in(st *inventory.State) locked { return locked{st, s.guarded.In(&st.View), s} }

// update calls f with the lock held.
func (s *Service) update(f func(locked)) {
	s.inventory.Update(func(st *inventory.State) { f(s.in(st)) })
}

// view calls f with the lock held. f must not modify the state.
func (s *Service) view(f func(*inventory.View, *shared)) {
	s.inventory.View(func(v *inventory.View) { f(v, s.guarded.In(v)) })
}

// serves reports whether a claim is for the current incarnation. A local caller's claim names none.
func serves(v *inventory.View, c *Claim) bool {
	return v.Serving() && (c.Incarnation == 0 || c.Incarnation == v.Incarnation())
}
