// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"container/list"
)

// idleQueue holds the Pods of a pool that can be handed out, oldest first, also by the image that they run.
type idleQueue struct {
	all     list.List // of *entry
	byImage map[string]*list.List
}

func (q *idleQueue) len() int { return q.all.Len() }

func (q *idleQueue) push(e *entry) {
	if e.place.queued() {
		return
	}
	if q.byImage == nil {
		q.byImage = map[string]*list.List{}
	}
	image := e.pod.Spec.Containers[0].Image
	same := q.byImage[image]
	if same == nil {
		same = list.New()
		q.byImage[image] = same
	}
	e.place = place{image: image, all: q.all.PushBack(e), same: same.PushBack(e)}
}

func (q *idleQueue) remove(e *entry) {
	if !e.place.queued() {
		return
	}
	q.all.Remove(e.place.all)
	same := q.byImage[e.place.image]
	if same.Remove(e.place.same); same.Len() == 0 {
		delete(q.byImage, e.place.image)
	}
	e.place = place{}
}

// pop takes a Pod that runs the image already if there is one: that claim costs no restart.
func (q *idleQueue) pop(image string) *entry {
	from := &q.all
	if same := q.byImage[image]; same != nil {
		from = same
	}
	front := from.Front()
	if front == nil {
		return nil
	}
	e, ok := front.Value.(*entry)
	if !ok {
		return nil
	}
	q.remove(e)
	return e
}

// place is where an entry stands in an idleQueue.
type place struct {
	image     string
	all, same *list.Element
}

func (p place) queued() bool { return p.all != nil }

// waitQueue holds the claims that wait for a Pod, in the order in which they came. A claim that lost its Pod to another
// writer comes back with its old ticket, and so to its old place.
type waitQueue struct {
	claims list.List // of *op
	ticket uint64
}

func (q *waitQueue) len() int { return q.claims.Len() }

// number gives a claim its place, once.
func (q *waitQueue) number(o *op) {
	if o.ticket == 0 {
		q.ticket++
		o.ticket = q.ticket
	}
}

// first reports whether no claim waits that came before o.
func (q *waitQueue) first(o *op) bool {
	front := q.front()
	return front == nil || front.ticket > o.ticket
}

func (q *waitQueue) front() *op {
	if front := q.claims.Front(); front != nil {
		if o, ok := front.Value.(*op); ok {
			return o
		}
	}
	return nil
}

func (q *waitQueue) add(o *op) {
	for at := q.claims.Front(); at != nil; at = at.Next() {
		if other, ok := at.Value.(*op); ok && other.ticket > o.ticket {
			o.waiting = q.claims.InsertBefore(o, at)
			return
		}
		if o.ticket == q.ticket {
			break // the newest of all: no need to look for its place
		}
	}
	o.waiting = q.claims.PushBack(o)
}

func (q *waitQueue) remove(o *op) {
	if o.waiting != nil {
		q.claims.Remove(o.waiting)
		o.waiting = nil
	}
}
