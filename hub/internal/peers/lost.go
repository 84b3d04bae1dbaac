// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"slices"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/validate"
)

// namedFor is how long a message that was sent may not have arrived, because its connection is found to be broken.
const namedFor = 2 * time.Minute

// unsettled is what peers are told is lost: the lists of RelayLost. No element of a list is ever replaced.
type unsettled struct {
	dispatches []uint64 // through the peer
	calls      []*federationv1.LostCall
	sandboxes  []string
}

// named is what a message has named.
type named struct {
	unsettled
	at time.Time
}

func (u unsettled) empty() bool { return len(u.dispatches)+len(u.calls)+len(u.sandboxes) == 0 }

// with returns u and more, in lists of their own. The oldest are forgotten first.
func (u unsettled) with(more unsettled) unsettled {
	return unsettled{
		dispatches: last(slices.Concat(u.dispatches, more.dispatches)),
		calls:      last(slices.Concat(u.calls, more.calls)),
		sandboxes:  last(slices.Concat(u.sandboxes, more.sandboxes)),
	}
}

// batch is what one message names.
func (u unsettled) batch() unsettled {
	return unsettled{dispatches: first(u.dispatches), calls: first(u.calls), sandboxes: first(u.sandboxes)}
}

// without returns what follows a batch that was sent. More may have come since, in front of which the oldest are forgotten.
func (u unsettled) without(sent unsettled) unsettled {
	return unsettled{
		dispatches: after(u.dispatches, sent.dispatches), calls: after(u.calls, sent.calls), sandboxes: after(u.sandboxes, sent.sandboxes),
	}
}

func last[T any](all []T) []T { return all[max(0, len(all)-maxLost):] }

func first[T any](all []T) []T { return all[:min(len(all), lostBatch)] }

// after returns a copy of what follows the last of those that were sent.
func after[T comparable](all, sent []T) []T {
	if len(sent) == 0 {
		return all
	}
	return slices.Clone(all[slices.Index(all, sent[len(sent)-1])+1:])
}

// lose notes what the peer is to be told.
func (p *peer) lose(more unsettled) {
	p.mu.Lock()
	p.unsettled = p.unsettled.with(more)
	p.mu.Unlock()
	p.signal()
}

// told notes what was sent.
func (p *peer) told(sent unsettled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.service.opts.Clock.Now()
	p.unsettled = p.unsettled.without(sent)
	p.named = append(slices.DeleteFunc(p.named, func(n named) bool { return now.Sub(n.at) > namedFor }), named{sent, now})
}

// nameAgain puts back what was sent of late; because a message that a broken connection takes is not an error. To name something twice does
// no harm. It is called with the peer's lock held.
func (p *peer) nameAgain() {
	var again unsettled
	for _, n := range p.named {
		again = again.with(n.unsettled)
	}
	p.unsettled, p.named = again.with(p.unsettled), nil
}

// leave tells every peer what the end of a stream has left open, and every later one; because a replica that was frozen may know of no
// peers when it finds out.
func (s *Service) leave(lost *federationv1.RelayLost) {
	more := unsettled{calls: lost.GetCalls(), sandboxes: lost.GetSandboxIds()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = s.open.with(more)
	for _, p := range s.peers {
		p.lose(more)
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
