// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"container/list"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/worker/internal/sandbox"
)

// offer makes a Pod idle if it can be claimed. A Pod of which a newer version was seen waits until that version is seen again: it may look
// idle because etcd was restored from a backup, and may be the Pod that was claimed last (I1).
func (s *State) offer(p *Pod) {
	if p.taken || p.place.queued() || p.version == p.lostVersion || !p.Current() {
		return
	}
	var on *corev1.Node
	if n := s.nodes[p.object.Spec.NodeName]; n != nil {
		on = n.object
	}
	if sandbox.Claimable(p.object, on).OK() {
		p.pool.idle.push(p)
		s.Touch(p.pool)
	}
}

// withdraw removes a Pod from the idle queue.
func (s *State) withdraw(p *Pod) {
	if p.place.queued() {
		p.pool.idle.remove(p)
		s.Touch(p.pool)
	}
}

// idleQueue holds the claimable Pods of a pool, indexed also by the image that they run. The Pod that came last is taken first. A pool's
// surplus Pods therefore stay idle, and the autoscaler, which marks Pods that are idle for long, finds them. A Pod on which a claim's write
// failed is the last choice.
type idleQueue struct {
	all     list.List // of *Pod
	byImage map[string]*list.List
}

// place is the position of a Pod in an idleQueue.
type place struct {
	image     string
	all, same *list.Element
}

func (p place) queued() bool { return p.all != nil }

func (q *idleQueue) len() int { return q.all.Len() }

func (q *idleQueue) push(p *Pod) {
	if q.byImage == nil {
		q.byImage = map[string]*list.List{}
	}
	image := p.object.Spec.Containers[0].Image
	same := q.byImage[image]
	if same == nil {
		same = list.New()
		q.byImage[image] = same
	}
	if p.failed {
		p.place = place{image: image, all: q.all.PushFront(p), same: same.PushFront(p)}
		return
	}
	p.place = place{image: image, all: q.all.PushBack(p), same: same.PushBack(p)}
}

func (q *idleQueue) remove(p *Pod) {
	q.all.Remove(p.place.all)
	same := q.byImage[p.place.image]
	if same.Remove(p.place.same); same.Len() == 0 {
		delete(q.byImage, p.place.image)
	}
	p.place = place{}
}

// pop takes a Pod that already runs the image, because that claim costs no restart; else one whose node has pulled the image; else any.
func (q *idleQueue) pop(image string, hasPulled func(p *Pod, image string) bool) *Pod {
	from := &q.all
	if same := q.byImage[image]; same != nil {
		from = same
	}
	last := from.Back()
	if last == nil {
		return nil
	}
	p := last.Value.(*Pod)
	if from == &q.all {
		for e, looked := last, 0; e != nil && looked < maxChecked; e, looked = e.Prev(), looked+1 {
			if one := e.Value.(*Pod); !one.failed && hasPulled(one, image) {
				p = one
				break
			}
		}
	}
	q.remove(p)
	return p
}
