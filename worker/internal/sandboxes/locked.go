// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"navix.sh/atoll/worker/internal/inventory"
)

// shared is the state that the inventory's lock guards.
type shared struct {
	watches     map[string]*watch      // by sandbox id
	transitions map[string]*transition // pauses and resumes under way, by sandbox id
	nudged      map[string]bool        // sandboxes with a failed write, which is retried after a while
	disposing   map[string]bool        // sandboxes under disposal; true if it was requested again
	ended       *endedStore
	stopped     bool // accepts no new records
	keeping     bool // a goroutine is storing the records in ended
	distrust    bool // etcd was restored from a backup before this process led
	onEnded     []func()
	onShut      []func(id string)
	feeds       map[*feed]struct{}
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
