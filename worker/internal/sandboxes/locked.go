// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"navix.sh/atoll/worker/internal/inventory"
)

// shared is what the inventory's lock guards.
type shared struct {
	watches     map[string]*watch      // by sandbox id
	transitions map[string]*transition // pauses and resumes under way, by sandbox id
	nudged      map[string]bool        // the sandboxes of which a write has failed, and is tried again after a while
	disposing   map[string]bool        // the sandboxes that are disposed of; true: something asked for it again
	ended       *endedStore
	stopped     bool // takes no more records
	keeping     bool // what is in ended is being made durable
	distrust    bool // etcd was set back before this process led
	onEnded     []func()
	onShut      []func(id string)
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
