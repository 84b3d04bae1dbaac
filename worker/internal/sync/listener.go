// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"slices"
	"sync"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"

	"k8s.io/utils/clock"
)

// Listener merges the hub's messages like a Syncer, and writes nothing.
type Listener struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	foreign *foreign
}

// NewListener returns an empty Listener.
func NewListener(c clock.PassiveClock) *Listener { return &Listener{clock: c, foreign: newForeign()} }

// Connected is like Syncer.Connected.
func (l *Listener) Connected(connected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !connected {
		l.foreign.disconnected()
	}
}

// Receive is like Syncer.Receive.
func (l *Listener) Receive(m *federationv1.Foreign) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.foreign.receive(m, l.clock.Now())
}

// Members returns the members of an Env in each other cluster, as reported.
func (l *Listener) Members(k segment.Key) map[string][]segment.Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string][]segment.Member{}
	for id, s := range l.foreign.envs[k] {
		if s != nil {
			out[id] = slices.Clone(s.members)
		}
	}
	return out
}
