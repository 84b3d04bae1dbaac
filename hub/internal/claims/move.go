// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// moveEvery is how often a claim that may wait looks for an idle Pod elsewhere, and for how long one must have been there.
	moveEvery = time.Second
	// maxMoves bounds how often a claim leaves a queue: each time it may lose its place for a Pod that another claim takes.
	maxMoves = 8
)

// move is where a claim that waits goes, with the idle Pod that is reserved for it there.
type move struct {
	view        *router.View
	index       int
	reservation fleet.Reservation
}

// askAndLookElsewhere asks the target, and meanwhile looks for an idle Pod elsewhere if the claim may wait in the target's queue. A claim
// with a key leaves only by a refusal of its worker, which Withdraw asks for (I2). One without a key leaves as if its caller had left.
func (p *pursuit) askAndLookElsewhere(ctx context.Context) (*federationv1.Answer, error) {
	if p.target.idleOnly || p.request.GetNoQueue() || p.moves >= maxMoves {
		return p.ask(ctx)
	}
	asking, leave := context.WithCancel(ctx)
	defer leave()
	var found *move
	looked := make(chan struct{})
	t := *p.target
	go func() {
		defer close(looked)
		if m := p.lookElsewhere(asking, &t); m != nil {
			found = m
			if p.keyHash == "" {
				leave()
			}
		}
	}()
	answer, err := p.ask(asking)
	leave()
	<-looked
	p.elsewhere = found
	return answer, err
}

// whetherMoved returns how the latest dispatch ended, of which the outcome is known. A claim that did not leave its queue moves nowhere.
func (p *pursuit) whetherMoved(got dispatchOutcome) dispatchOutcome {
	switch {
	case p.elsewhere == nil:
		return got
	case got == refused || got == unclear && p.keyHash == "":
		return moved
	}
	p.stay()
	return got
}

// stay gives up the idle Pod elsewhere.
func (p *pursuit) stay() {
	if p.elsewhere != nil {
		p.elsewhere.reservation.Cancel()
		p.elsewhere = nil
	}
}

// takeMove returns the target of a claim that moves, nil for one that chooses. It may have the queue as a choice again, as at first.
func (p *pursuit) takeMove() *target {
	m := p.elsewhere
	if m == nil {
		return nil
	}
	p.elsewhere, p.busy, p.at.tried = nil, nil, 0
	p.moves++
	c := m.view.Candidate(m.index)
	p.explain(m.view, c)
	return &target{
		cluster: c.Cluster.ID, uid: p.service.fleet.Registration(c.Cluster.ID), pool: c.Member().Name, reservation: m.reservation, idleOnly: true,
	}
}

// lookElsewhere returns once the claim has been withdrawn from its queue, or may have been, because another candidate has had an idle Pod
// for moveEvery. It returns nil when ctx ends. One Pod moves one claim: the others find it reserved.
func (p *pursuit) lookElsewhere(ctx context.Context, from *target) *move {
	for seen := false; wallclock.Sleep(ctx, p.service.clock, moveEvery) == nil; {
		view, index := p.idleBeside(from)
		if view == nil {
			seen = false
			continue
		}
		if !seen {
			seen = true
			continue
		}
		m := &move{view: view, index: index, reservation: p.service.fleet.Reserve(view, index)}
		if m.reservation.Overdrawn() {
			m.reservation.Cancel()
			continue
		}
		switch p.withdraw(ctx, from) {
		case stays:
			m.reservation.Cancel()
		case cannotLeave:
			m.reservation.Cancel()
			return nil
		default:
			return m
		}
	}
	return nil
}

// idleBeside returns another candidate with an idle Pod; nil without one.
func (p *pursuit) idleBeside(from *target) (*router.View, int) {
	view := p.service.fleet.View(segment.Key{Namespace: p.request.GetNamespace(), Name: p.request.GetEnv()})
	if view == nil {
		return nil, 0
	}
	route := p.route
	route.Exclude(from.cluster, from.pool)
	picked := router.Pick(&route, view, p.service.rand())
	if !picked.OK() || !picked.Tier.Idle() {
		return nil, 0
	}
	return view, picked.Index
}

// leaving is what became of a request to leave a queue.
type leaving string

const (
	leaves leaving = "Leaves" // or may: the dispatch's answer tells
	stays  leaving = "Stays"
	// cannotLeave: an earlier version of the worker keeps claims where they are.
	cannotLeave leaving = "CannotLeave"
)

func (p *pursuit) withdraw(ctx context.Context, from *target) leaving {
	if p.keyHash == "" {
		return leaves
	}
	_, err := p.service.workers.Call(ctx, from.cluster, &federationv1.Dispatch{
		Call: &federationv1.Dispatch_Withdraw{Withdraw: &federationv1.WithdrawCall{KeyHash: p.keyHash, Attempt: from.attempt}},
	})
	switch {
	case err == nil || ctx.Err() != nil: // the claim was answered meanwhile, perhaps for this very reason
		return leaves
	case reasonOf(err) == problem.Unimplemented:
		return cannotLeave
	default:
		return stays
	}
}
