// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
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
	select {
	case e = <-o.handed:
		return e, nil
	case err = <-o.refused:
		return nil, err
	case <-timer.C():
		err = refuse(problem.Deadline, "no Pod of pool %s became idle in time", o.claim.Pool.Name)
	case <-ctx.Done():
		err = refuse(problem.NoCapacity, "the claim was canceled while it waited for a Pod")
	}
	return s.stopWaiting(o, err)
}

// acquireNow takes an idle Pod, or puts the claim into the queue: then it returns neither Pod nor error.
func (s *Service) acquireNow(o *op) (*entry, error) {
	s.mu.Lock()
	defer s.unlock()
	p, name := o.pool, o.claim.Pool.Name
	switch {
	case o.canceled || s.leading == nil:
		return nil, refuse(problem.NoCapacity, "the claim was canceled")
	case p.closing:
		return nil, refuse(problem.NoCapacity, "pool %s is being removed", name)
	}
	again := o.ticket != 0
	p.waiting.number(o)
	if p.waiting.first(o) {
		if e := p.idle.pop(o.image); e != nil {
			e.taken = true
			s.touch(p)
			return e, nil
		}
	}
	switch {
	case o.claim.Request.GetNoQueue():
		return nil, refuse(problem.NoCapacity, "pool %s has no idle Pod", name)
	case !again && p.waiting.len() >= int(s.opts.QueueCapacity):
		return nil, refuse(problem.QueueFull, "pool %s: %d claims are waiting already", name, p.waiting.len())
	case !s.opts.Clock.Now().Before(o.deadline):
		return nil, refuse(problem.Deadline, "no Pod of pool %s became idle in time", name)
	}
	p.waiting.add(o)
	s.touch(p)
	return nil, nil
}

// stopWaiting leaves the queue, unless a Pod was handed over at the last moment.
func (s *Service) stopWaiting(o *op, err error) (*entry, error) {
	s.mu.Lock()
	defer s.unlock()
	select {
	case e := <-o.handed:
		if !o.canceled && s.leading != nil {
			return e, nil
		}
		s.putBack(e)
	default:
	}
	o.pool.waiting.remove(o)
	s.touch(o.pool)
	return nil, err
}

// putBack returns a Pod that was taken and not written. The lock is held.
func (s *Service) putBack(e *entry) {
	e.taken = false
	if s.pods[e.pod.UID] == e {
		s.offer(e)
	}
}

// awaitRunning waits until a sandbox runs, or has ended, or time is up.
func (s *Service) awaitRunning(ctx context.Context, id string, deadline time.Time) (_ *sandboxv1.Sandbox, err error) {
	ctx, span := telemetry.Start(ctx, "start")
	defer func() { telemetry.End(span, err) }()
	timer := s.opts.Clock.NewTimer(deadline.Sub(s.opts.Clock.Now()))
	defer timer.Stop()
	for {
		record, changed := s.look(id)
		switch record.GetPhase() {
		case sandboxv1.Phase_RUNNING:
			return record, nil
		case sandboxv1.Phase_STARTING:
		default:
			return nil, startFailure(id, record)
		}
		select {
		case <-changed:
		case <-timer.C():
			return nil, late(id, record)
		case <-ctx.Done():
			return nil, late(id, record)
		}
	}
}

// look answers a sandbox, live or ended, and for one that is starting a channel that is closed when there is more to know.
func (s *Service) look(id string) (*sandboxv1.Sandbox, <-chan struct{}) {
	s.mu.Lock()
	defer s.unlock()
	record := s.showLocked(id)
	ch, ok := s.watch[id]
	if !ok && record.GetPhase() == sandboxv1.Phase_STARTING {
		ch = make(chan struct{})
		s.watch[id] = ch
	}
	return record, ch
}
