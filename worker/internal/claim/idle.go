// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"container/list"
)

// idleQueue holds the Pods of a pool that can be handed out, also by the image that they run. The one that came last is
// handed out first: so those that a pool has too many stay idle, and the autoscaler, which marks what has been idle for
// long, finds them. One on which a claim was not written is the last choice.
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
	if e.failed {
		e.place = place{image: image, all: q.all.PushFront(e), same: same.PushFront(e)}
		return
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
	last := from.Back()
	if last == nil {
		return nil
	}
	e, ok := last.Value.(*entry)
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
