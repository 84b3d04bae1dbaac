// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
)

// acquire gets an idle Pod, waiting for one if it must.
func (s *Service) acquire(ctx context.Context, o *op) (e *entry, err error) {
	ctx, span := telemetry.Start(ctx, "queue")
	defer func() { telemetry.End(span, err) }()
	e, err = s.acquireNow(o)
	if e != nil || err != nil {
		return e, err
	}
	timer := s.opts.Clock.NewTimer(o.deadline.Sub(s.opts.Clock.Now()))
	defer timer.Stop()
	why := canceled
	select {
	case e = <-o.handed:
	case err = <-o.refused:
		return nil, err
	case <-timer.C():
		why = tooLate
	case <-ctx.Done():
	}
	return s.stopWaiting(o, e, why)
}

// acquireNow takes an idle Pod, or puts the claim into the queue: then it returns neither Pod nor error.
func (s *Service) acquireNow(o *op) (*entry, error) {
	s.mu.Lock()
	defer s.unlock()
	p := o.pool
	newest, most := p.waiting.newest()
	got := admit(&asking{
		canceled: o.canceled || s.leading == nil, closing: p.closing, left: o.deadline.Sub(s.opts.Clock.Now()),
		idle: p.idle.len() > 0, noQueue: o.claim.Request.GetNoQueue(), again: o.ticket != 0,
		empty: p.pods == 0 && p.spec != nil && p.spec.Replicas == 0, saturated: s.saturatedFor(p),
		waiting: p.waiting.len(), capacity: int(s.opts.QueueCapacity), own: p.waiting.of(o.tenant), most: most,
	})
	p.waiting.number(o)
	switch got {
	case takesPod:
		// Nobody waits: a Pod is idle only while nobody does.
		e := p.idle.pop(o.image)
		p.waiting.pass(o)
		e.taken = true
		s.touch(p)
		return e, nil
	case displaces:
		p.waiting.remove(newest)
		newest.refused <- s.turnAway(p, displaced)
	case waits:
	default:
		return nil, s.turnAway(p, got)
	}
	p.waiting.add(o)
	s.touch(p)
	return nil, nil
}

// turnAway is the refusal of a claim that gets no Pod.
func (s *Service) turnAway(p *pool, why admission) error {
	s.metrics.turnedAway(why)
	switch name := p.key.Name; why {
	case closing:
		return refuse(problem.NoCapacity, "pool %s is being removed", name)
	case tooLate:
		return refuse(problem.Deadline, "no Pod of pool %s became idle in time", name)
	case noneIdle:
		return refuse(problem.NoCapacity, "pool %s has no idle Pod", name)
	case hopeless:
		return refuse(problem.NoCapacity, "pool %s has no Pods and cannot get any in time", name)
	case full:
		return refuse(problem.QueueFull, "pool %s: %d claims are waiting already", name, p.waiting.len())
	case displaced:
		return refuse(problem.QueueFull, "pool %s: the queue is full, and most of it was this team's and user's", name)
	default:
		return refuse(problem.NoCapacity, "the claim was canceled")
	}
}

// stopWaiting leaves the queue: with the Pod that was handed over, be it at the last moment, unless nobody wants it any more.
func (s *Service) stopWaiting(o *op, e *entry, why admission) (*entry, error) {
	s.mu.Lock()
	defer s.unlock()
	select {
	case e = <-o.handed:
	case err := <-o.refused:
		return nil, err
	default:
	}
	unwanted := o.canceled || s.leading == nil
	if e != nil && !unwanted {
		return e, nil
	}
	o.pool.waiting.remove(o)
	if e != nil {
		s.putBack(e)
	}
	s.touch(o.pool)
	if unwanted {
		why = canceled
	}
	return nil, s.turnAway(o.pool, why)
}

// putBack returns a Pod that was taken and not written. The lock is held.
func (s *Service) putBack(e *entry) {
	e.taken, e.failed = false, true
	if s.pods[e.pod.UID] == e {
		s.offer(e)
	}
}
