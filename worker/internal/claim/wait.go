// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
)

// queue holds the waiting claims of a pool. It is removed with the pool.
type queue struct {
	waitQueue
	pool     types.NamespacedName
	asked    time.Time // when a sandbox was last requested
	queued   bool      // had claims when OnQueue was last called
	claiming int32     // calls of the hub whose claims have a Pod
}

func (l locked) queueOf(pool types.NamespacedName) *queue {
	q := l.queues[pool]
	if q == nil {
		q = &queue{waitQueue: newWaitQueue(), pool: pool}
		l.queues[pool] = q
	}
	return q
}

// acquire returns an idle Pod, and waits for one if necessary.
func (s *Service) acquire(ctx context.Context, o *op) (hold *inventory.Hold, err error) {
	ctx, span := telemetry.Start(ctx, "queue")
	defer func() { telemetry.End(span, err) }()
	s.update(func(l locked) { hold, err = l.ask(o) })
	if hold != nil || err != nil {
		return hold, err
	}
	timer := s.clock.NewTimer(o.deadline.Sub(s.clock.Now()))
	defer timer.Stop()
	why := canceled
	select {
	case hold = <-o.handed:
	case err = <-o.refused:
		return nil, err
	case <-timer.C():
		why = pastDeadline
	case <-ctx.Done():
	}
	s.update(func(l locked) { hold, err = l.stopWaiting(o, hold, why) })
	return hold, err
}

// ask takes an idle Pod, or puts the claim into the queue and returns neither a Pod nor an error.
func (l locked) ask(o *op) (*inventory.Hold, error) {
	l.lose(o)
	q, p := o.queue, l.Pool(o.claim.Pool)
	if p == nil || l.queues[q.pool] != q {
		return nil, l.turnAway(q, poolRemoved)
	}
	newest, own, most := q.crowd(o.tenant)
	got := admit(&asking{
		canceled: o.canceled || l.Leading() == nil, closing: p.Closing(), left: o.deadline.Sub(l.clock.Now()),
		idle: p.Idle() > 0, noQueue: o.claim.Request.GetNoQueue() || o.claim.IdleOnly, again: o.ticket != 0,
		empty: p.Empty(), saturated: l.saturatedFor(q.pool),
		waiting: q.len(), capacity: int(l.opts.QueueCapacity), own: own, most: most,
	})
	q.number(&o.waiter)
	switch got {
	case takesPod:
		q.pass(&o.waiter) // no claim waits, because a Pod is idle
		return l.give(q, &o.waiter, p), nil
	case displaces:
		q.remove(newest)
		newest.refused <- l.turnAway(q, displaced)
	case waits:
	default:
		return nil, l.turnAway(q, got)
	}
	q.add(&o.waiter)
	l.Touch(p)
	return nil, nil
}

// give takes an idle Pod for a claim. Its calls count as claiming from now on. The hub deducts them from the idle Pods until they return,
// and would deduct the Pod as well.
func (l locked) give(q *queue, w *waiter, p *inventory.Pool) *inventory.Hold {
	w.taken = true
	q.claiming += int32(w.callers)
	return l.Take(p, w.image)
}

// lose records that a claim has no Pod.
func (l locked) lose(o *op) {
	if o.taken {
		o.taken = false
		l.count(o.queue, -o.callers)
	}
}

// call adds to the number of the hub's calls that wait for a claim.
func (l locked) call(o *op, more int) {
	o.callers += more
	if o.taken {
		l.count(o.queue, more)
	}
}

func (l locked) count(q *queue, calls int) {
	q.claiming += int32(calls)
	l.touch(q)
}

// touch has the numbers of a queue's pool announced.
func (l locked) touch(q *queue) {
	if p := l.Pool(q.pool); p != nil {
		l.Touch(p)
	}
}

// saturatedFor returns how long a pool will not grow.
func (l locked) saturatedFor(pool types.NamespacedName) time.Duration {
	if l.outlook == nil {
		return 0
	}
	_, saturated := l.outlook(pool)
	return saturated
}

// serve hands the idle Pods of a pool to the next claims, in the critical section in which the Pods became idle. A Pod is therefore idle
// only while no claim waits.
func (l locked) serve(p *inventory.Pool) {
	q := l.queues[p.Key()]
	if q == nil {
		return
	}
	for q.len() > 0 && p.Closing() {
		q.next().refused <- l.turnAway(q, poolRemoved)
	}
	for q.len() > 0 && p.Idle() > 0 {
		next := q.next()
		next.handed <- l.give(q, next, p)
	}
	if queued := q.len() > 0; queued != q.queued {
		q.queued = queued
		for _, f := range l.onQueue {
			l.After(func() { f(q.pool) })
		}
	}
	if p.Spec() == nil {
		delete(l.queues, q.pool)
	}
}

// stopWaiting removes a claim from the queue. It returns the Pod if one was handed over at the last moment and a caller still wants it.
func (l locked) stopWaiting(o *op, hold *inventory.Hold, why admission) (*inventory.Hold, error) {
	select {
	case hold = <-o.handed:
	case err := <-o.refused:
		return nil, err
	default:
	}
	unwanted := o.canceled || l.Leading() == nil
	if hold != nil && !unwanted {
		return hold, nil
	}
	o.queue.remove(&o.waiter)
	if hold != nil {
		l.Return(hold)
	}
	l.touch(o.queue)
	if unwanted {
		why = canceled
	}
	return nil, l.turnAway(o.queue, why)
}

// turnAway returns the refusal of a claim that gets no Pod.
func (l locked) turnAway(q *queue, why admission) error {
	l.metrics.turnedAway.WithLabelValues(string(why)).Inc()
	switch name := q.pool.Name; why {
	case poolRemoved:
		return disposition.Refuse(problem.NoCapacity, "pool %s is being removed", name)
	case pastDeadline:
		return disposition.Refuse(problem.Deadline, "no Pod of pool %s became idle in time", name)
	case noneIdle:
		return disposition.Refuse(problem.NoCapacity, "pool %s has no idle Pod", name)
	case hopeless:
		return disposition.Refuse(problem.NoCapacity, "pool %s has no Pods and cannot get any in time", name)
	case queueFull:
		return disposition.Refuse(problem.QueueFull, "pool %s: %d claims are waiting already", name, q.len())
	case displaced:
		return disposition.Refuse(problem.QueueFull, "pool %s: the queue is full, and most of it was this team's, or this user's of the team",
			name)
	case withdrawn:
		return disposition.Refuse(problem.NoCapacity, "pool %s has no idle Pod, and another cluster has one", name)
	default:
		return disposition.Refuse(problem.NoCapacity, "the claim was canceled")
	}
}
