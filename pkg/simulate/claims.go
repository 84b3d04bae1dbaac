// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"container/list"
	"time"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

// waiting is a claim in a pool's queue.
type waiting struct {
	claim *Claim
	since time.Duration
	place *list.Element // nil after it has left
}

// claim routes a claim as the hub does. The pool serves the claim, queues it or refuses it.
func (w *world) claim(c *Claim) {
	request := router.Request{ScalingGroup: c.Group}
	candidates := make([]router.Candidate, 0, len(w.pools))
	for _, p := range w.pools {
		candidates = append(candidates, router.Candidate{Cluster: w.clusters[p.Cluster], Segment: p.segment()})
	}
	view := router.NewView(candidates)
	picked := router.Pick(&request, view, w.routes.Uint64())
	if !picked.OK() {
		w.run.Refused[string(problem.NoCapacity)]++
		return
	}
	chosen := view.Candidate(picked.Index)
	for _, p := range w.pools {
		if p.Cluster == chosen.Cluster.ID && p.Name == chosen.Member().Name {
			p.take(c)
			return
		}
	}
}

// segment returns the pool as the worker reports it.
func (p *pool) segment() *segment.Segment {
	m := segment.Member{
		Name:          p.Name,
		Shape:         segment.Share(segment.Shape{ScalingGroup: p.Config.ScalingGroup, Priority: p.Config.Priority}),
		ReadyIdle:     p.counts[idle],
		Pending:       int32(p.queue.Len()),
		QueueCapacity: int32(p.world.plan.Model.QueueCapacity),
		State:         segment.Active,
		CanGrow:       p.canGrow,
	}
	if p.saturated() {
		m.State = segment.Saturated
	}
	return segment.New(segment.Key{}).With(m)
}

// take serves a claim now or queues it.
func (p *pool) take(c *Claim) {
	p.lastCreate = p.world.now
	w := &waiting{claim: c, since: p.world.now}
	if p.idle.Len() > 0 {
		p.serve(p.firstIdle(), w)
		return
	}
	patience := p.world.plan.Model.Patience
	switch {
	case p.held() == 0 && p.applied == 0 && p.saturatedUntil.Sub(p.world.time()) >= patience:
		p.out.Refused[string(problem.NoCapacity)]++ // no Pod can become ready in time
		return
	case p.queue.Len() >= p.world.plan.Model.QueueCapacity:
		p.out.Refused[string(problem.QueueFull)]++
		return
	}
	w.place = p.queue.PushBack(w)
	p.changed()
	if p.queue.Len() == 1 {
		p.cache.onChange(firstWaits)
	}
	p.cache.onChange(settle)
	p.world.in(patience, func() {
		if w.place != nil {
			p.leave(w)
			p.out.Refused[string(problem.Deadline)]++
		}
	})
}

// firstIdle returns the Pod that a claim takes. As in a worker, this is the Pod that became idle last, so that surplus Pods stay idle.
func (p *pool) firstIdle() *pod { return p.idle.Back().Value.(*pod) }

func (p *pool) nextWaiting() *waiting {
	front := p.queue.Front()
	if front == nil {
		return nil
	}
	w := front.Value.(*waiting)
	p.leave(w)
	return w
}

func (p *pool) leave(w *waiting) {
	p.queue.Remove(w.place)
	w.place = nil
	p.changed()
	p.cache.onChange(settle)
}

// serve models the write of a claim, which also removes a mark.
func (p *pool) serve(n *pod, w *waiting) {
	if n.place != nil {
		p.idle.Remove(n.place)
		n.place = nil
	}
	if n.marked {
		n.marked = false
		p.event(Event{Kind: Kept, From: p.replicas, To: p.replicas, Reason: "Claimed", Text: "a Pod marked for removal was claimed"})
	}
	p.setState(n, running)
	p.out.Waits = append(p.out.Waits, p.world.now-w.since)
	p.later(n, w.claim.Runs, func() {
		p.setState(n, stopping)
		p.later(n, p.slowed(p.world.plan.Model.Recycle), func() { p.becomeIdle(n) })
	})
}
