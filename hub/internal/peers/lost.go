// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"slices"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/validate"
)

// leftOpen is what workers' streams of this replica have left open (attach.Server.OnLost).
type leftOpen struct {
	calls     []*federationv1.LostCall
	sandboxes []string
}

func (l leftOpen) size() int { return len(l.calls) + len(l.sandboxes) }

// with returns l and more. The oldest are forgotten first.
func (l leftOpen) with(more leftOpen) leftOpen {
	return leftOpen{calls: last(slices.Concat(l.calls, more.calls)), sandboxes: last(slices.Concat(l.sandboxes, more.sandboxes))}
}

func last[T any](all []T) []T { return all[max(0, len(all)-maxLost):] }

// namedFor is how long a message that was sent may not have arrived, because its connection is found to be broken.
const namedFor = 2 * time.Minute

// named is what a message has named.
type named struct {
	at   time.Time
	lost []uint64
	open leftOpen
}

// batch is what one message names.
func (l leftOpen) batch() leftOpen {
	return leftOpen{calls: l.calls[:min(len(l.calls), lostBatch)], sandboxes: l.sandboxes[:min(len(l.sandboxes), lostBatch)]}
}

// leave tells every peer what the end of a stream has left open, and every later one; because a replica that was frozen may know of no
// peers when it finds out.
func (s *Service) leave(lost *federationv1.RelayLost) {
	more := leftOpen{calls: lost.GetCalls(), sandboxes: lost.GetSandboxIds()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = s.open.with(more)
	for _, p := range s.peers {
		p.mu.Lock()
		p.ended = p.ended.with(more)
		p.mu.Unlock()
		p.signal()
	}
}

// leftElsewhere takes what a peer names.
func (s *server) leftElsewhere(lost *federationv1.RelayLost) {
	if len(lost.GetCalls()) > lostBatch || len(lost.GetSandboxIds()) > lostBatch {
		return
	}
	for _, l := range lost.GetCalls() {
		if !validate.IsClusterID(l.GetClusterId()) || len(l.GetTerm()) > maxName {
			return
		}
	}
	s.service.opts.Workers.LostElsewhere(lost)
}
