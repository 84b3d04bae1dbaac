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

// unsettled holds the losses that peers are told of: the lists of RelayLost. The elements of a list are never replaced.
type unsettled struct {
	dispatches []uint64 // through the peer
	calls      []*federationv1.LostCall
	sandboxes  []string
}

// named holds the losses in a message that was sent.
type named struct {
	unsettled
	at time.Time
}

func (u unsettled) empty() bool { return len(u.dispatches)+len(u.calls)+len(u.sandboxes) == 0 }

// with returns the elements of u and more, in new lists. It drops the oldest beyond maxLost.
func (u unsettled) with(more unsettled) unsettled {
	return unsettled{
		dispatches: last(slices.Concat(u.dispatches, more.dispatches)),
		calls:      last(slices.Concat(u.calls, more.calls)),
		sandboxes:  last(slices.Concat(u.sandboxes, more.sandboxes)),
	}
}

// batch returns the elements for one message.
func (u unsettled) batch() unsettled {
	return unsettled{dispatches: first(u.dispatches), calls: first(u.calls), sandboxes: first(u.sandboxes)}
}

// without returns the elements after a batch that was sent. Since then elements may have been added at the end and the oldest dropped.
func (u unsettled) without(sent unsettled) unsettled {
	return unsettled{
		dispatches: after(u.dispatches, sent.dispatches), calls: after(u.calls, sent.calls), sandboxes: after(u.sandboxes, sent.sandboxes),
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

// lose queues losses for the peer.
func (p *peer) lose(more unsettled) {
	p.mu.Lock()
	p.unsettled = p.unsettled.with(more)
	p.mu.Unlock()
	p.signal()
}

// told records that losses were sent.
func (p *peer) told(sent unsettled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.service.opts.Clock.Now()
	p.unsettled = p.unsettled.without(sent)
	p.named = append(slices.DeleteFunc(p.named, func(n named) bool { return now.Sub(n.at) > namedFor }), named{sent, now})
}

// nameAgain queues recently sent losses again; because a broken connection may take a message without an error. Naming a loss twice does no
// harm. Called with the peer's lock held.
func (p *peer) nameAgain() {
	var again unsettled
	for _, n := range p.named {
		again = again.with(n.unsettled)
	}
	p.unsettled, p.named = again.with(p.unsettled), nil
}

// leave queues the open calls of an ended stream for every peer, also for later ones; because a replica that was frozen may know no peers
// when it notices.
func (s *Service) leave(lost *federationv1.RelayLost) {
	more := unsettled{calls: lost.GetCalls(), sandboxes: lost.GetSandboxIds()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = s.open.with(more)
	for _, p := range s.peers {
		p.lose(more)
	}
}

// leftElsewhere processes the losses that a peer names.
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
