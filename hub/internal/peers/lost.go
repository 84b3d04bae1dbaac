// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"slices"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/validate"
)

// namedFor bounds the time until a broken connection is noticed, during which a sent message may be lost.
const namedFor = 2 * time.Minute

// losses holds the lists of a RelayLost. The elements of a list are never replaced.
type losses struct {
	dispatches []uint64                 // through the peer, whose responses were lost
	calls      []*federationv1.LostCall // the open calls of ended streams
	sandboxes  []string                 // that must still be released
}

// named holds the losses in a message that was sent.
type named struct {
	losses
	at time.Time
}

func (l losses) empty() bool { return len(l.dispatches)+len(l.calls)+len(l.sandboxes) == 0 }

// with returns the elements of l and more, in new lists. It drops the oldest beyond maxLost.
func (l losses) with(more losses) losses {
	return losses{
		dispatches: last(slices.Concat(l.dispatches, more.dispatches)),
		calls:      last(slices.Concat(l.calls, more.calls)),
		sandboxes:  last(slices.Concat(l.sandboxes, more.sandboxes)),
	}
}

// batch returns the elements for one message.
func (l losses) batch() losses {
	return losses{dispatches: first(l.dispatches), calls: first(l.calls), sandboxes: first(l.sandboxes)}
}

// without returns the elements after a batch that was sent. Since then elements may have been added at the end and the oldest dropped.
func (l losses) without(sent losses) losses {
	return losses{
		dispatches: after(l.dispatches, sent.dispatches), calls: after(l.calls, sent.calls), sandboxes: after(l.sandboxes, sent.sandboxes),
	}
}

func last[T any](all []T) []T { return all[max(0, len(all)-maxLost):] }

func first[T any](all []T) []T { return all[:min(len(all), lostBatch)] }

// after returns a copy of the elements that follow the last sent one.
func after[T comparable](all, sent []T) []T {
	if len(sent) == 0 {
		return all
	}
	return slices.Clone(all[slices.Index(all, sent[len(sent)-1])+1:])
}

// queueLosses queues losses for the peer.
func (p *peer) queueLosses(more losses) {
	p.mu.Lock()
	p.losses = p.losses.with(more)
	p.mu.Unlock()
	p.signal()
}

// markSent records that losses were sent.
func (p *peer) markSent(sent losses) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.service.opts.Clock.Now()
	p.losses = p.losses.without(sent)
	p.named = append(slices.DeleteFunc(p.named, func(n named) bool { return now.Sub(n.at) > namedFor }), named{sent, now})
}

// requeueLosses queues recently sent losses again; because a broken connection may take a message without an error. Naming a loss twice
// does no harm. Called with the peer's lock held.
func (p *peer) requeueLosses() {
	var again losses
	for _, n := range p.named {
		again = again.with(n.losses)
	}
	p.losses, p.named = again.with(p.losses), nil
}

// queueLosses queues the open calls of an ended stream, and the sandboxes that it could not release, for every peer, also for later ones;
// because a replica that was frozen may know no peers when it notices.
func (s *Service) queueLosses(lost *federationv1.RelayLost) {
	more := losses{calls: lost.GetCalls(), sandboxes: lost.GetSandboxIds()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = s.open.with(more)
	for _, p := range s.peers {
		p.queueLosses(more)
	}
}

// handleLost processes the losses that a peer names.
func (s *server) handleLost(lost *federationv1.RelayLost) {
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
