// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"container/list"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/worker/internal/sandbox"
)

// Hold is a Pod that was taken for one claim, and all that the claim has of it outside of Update.
type Hold struct{ pod *Pod }

// Take takes an idle Pod of a pool, one that runs the image already if there is one; nil if no Pod is idle.
func (s *State) Take(p *Pool, image string) *Hold {
	pod := p.idle.pop(image)
	if pod == nil {
		return nil
	}
	pod.taken = true
	s.Touch(p)
	return &Hold{pod}
}

// Held is the Pod of a hold as it was seen last: an event may show it anew at any time.
func (v *View) Held(h *Hold) *corev1.Pod { return h.pod.object }

// Return gives back a Pod that was not written. It is idle again if it can be handed out still.
func (s *State) Return(h *Hold) {
	h.pod.taken, h.pod.failed = false, true
	if s.pods[h.pod.object.UID] == h.pod {
		s.offer(h.pod)
	}
}

// Settle lets go of a Pod of which a live read, or the write of the claim, has told what it is now.
func (s *State) Settle(h *Hold, live *corev1.Pod) {
	h.pod.taken = false
	s.SeeLive(live)
	s.Return(h)
}

// Spoil lets go of a Pod that another writer has changed; live is what it is now, nil if that is not known. If it looks claimable
// still, it is not idle until it has changed: a claim would fail on it over and over.
func (s *State) Spoil(h *Hold, seen, live *corev1.Pod) {
	h.pod.spoilt = versionOf(seen)
	if live == nil {
		s.Return(h)
		return
	}
	h.pod.spoilt = versionOf(live)
	s.Settle(h, live)
}

// Drop lets go of a Pod that is gone.
func (s *State) Drop(h *Hold) {
	h.pod.taken = false
	if s.pods[h.pod.object.UID] == h.pod {
		s.Forget(h.pod.object)
	}
}

// offer makes a Pod that can be handed out idle. One of which more was seen before waits until that comes again: it may look idle
// because etcd was set back, and be the one that was handed out last (I1).
func (s *State) offer(p *Pod) {
	if p.taken || p.place.queued() || p.version == p.spoilt || !p.Current() {
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

// withdraw takes a Pod out of the idle ones.
func (s *State) withdraw(p *Pod) {
	if p.place.queued() {
		p.pool.idle.remove(p)
		s.Touch(p.pool)
	}
}

// idleQueue holds the Pods of a pool that can be handed out, also by the image that they run. The one that came last is handed
// out first: so those that a pool has too many stay idle, and the autoscaler, which marks what has been idle for long, finds
// them. One on which a claim was not written is the last choice.
type idleQueue struct {
	all     list.List // of *Pod
	byImage map[string]*list.List
}

// place is where a Pod stands in an idleQueue.
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

// pop takes a Pod that runs the image already if there is one: that claim costs no restart.
func (q *idleQueue) pop(image string) *Pod {
	from := &q.all
	if same := q.byImage[image]; same != nil {
		from = same
	}
	last := from.Back()
	if last == nil {
		return nil
	}
	p := last.Value.(*Pod)
	q.remove(p)
	return p
}
