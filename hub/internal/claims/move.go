// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// moveEvery is the interval at which a waiting claim looks for an idle Pod elsewhere, and the time for which such a Pod must have been
	// there.
	moveEvery = time.Second
	// maxMoves bounds how often a claim leaves a queue. Each time it may lose its place for a Pod that another claim takes.
	maxMoves = 8
)

// move is the new target of a waiting claim, with the idle Pod that is reserved for it there.
type move struct {
	view        *router.View
	index       int
	reservation fleet.Reservation
}

// askAndLookElsewhere sends the claim to the target. If the claim may wait in the target's queue, it also looks for an idle Pod elsewhere.
// A claim with a key leaves the queue only by a refusal of its worker, which Withdraw requests (I2). A claim without a key leaves as if its
// caller had left.
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

// whetherMoved returns moved if the claim left its queue for an idle Pod elsewhere. Otherwise it releases the reservation of that Pod, and
// returns the outcome of the dispatch.
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

// stay releases the reservation of the idle Pod elsewhere.
func (p *pursuit) stay() {
	if p.elsewhere != nil {
		p.elsewhere.reservation.Cancel()
		p.elsewhere = nil
	}
}

// takeMove returns the target of a claim that moves, or nil for a claim that chooses one. A claim that moves may queue again, as at first.
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

// lookElsewhere returns a move once another candidate has had an idle Pod for moveEvery and the claim has been, or may have been, withdrawn
// from its queue. It returns nil when ctx ends, or if the worker cannot withdraw claims. One Pod moves one claim: the others find it
// reserved.
func (p *pursuit) lookElsewhere(ctx context.Context, from *target) *move {
	for seen := false; wallclock.Sleep(ctx, p.service.clock, moveEvery) == nil; {
		view, index := p.idleBeside(p.route, from)
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

// idleBeside returns a candidate of a route other than from with an idle Pod, or nil if there is none.
func (p *pursuit) idleBeside(route router.Request, from *target) (*router.View, int) {
	view := p.service.fleet.View(envOf(p.request))
	if view == nil {
		return nil, 0
	}
	route.Exclude(from.cluster, from.pool)
	picked := router.Pick(&route, view, p.service.rand())
	if !picked.OK() || !picked.Tier.Idle() {
		return nil, 0
	}
	return view, picked.Index
}

// leaving is the result of a request to leave a queue.
type leaving string

const (
	leaves leaving = "Leaves" // or may leave: the result of the dispatch decides
	stays  leaving = "Stays"
	// cannotLeave: the worker is of an earlier version, which cannot withdraw claims.
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
	case err == nil || ctx.Err() != nil: // the dispatch has returned meanwhile, perhaps because of this request
		return leaves
	case reasonOf(err) == problem.Unimplemented:
		return cannotLeave
	default:
		return stays
	}
}
