// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	corev1 "k8s.io/api/core/v1"
)

// Hold is a Pod that was taken for one claim. Outside of Update, the claim has only the Hold.
type Hold struct{ pod *Pod }

// Take takes an idle Pod of a pool, preferably one that already runs the image, or whose node has pulled it. It returns nil if no Pod is
// idle.
func (s *State) Take(p *Pool, image string) *Hold {
	pod := p.idle.pop(image, s.hasPulled)
	if pod == nil {
		return nil
	}
	pod.taken = true
	s.Touch(p)
	return &Hold{pod}
}

// Held returns the Pod of a Hold as last seen. An event may update it at any time.
func (v *View) Held(h *Hold) *corev1.Pod { return h.pod.object }

// Return returns a Pod on which no write was tried. The Pod is idle again if it can still be claimed.
func (s *State) Return(h *Hold) {
	h.pod.taken = false
	if s.pods[h.pod.object.UID] == h.pod {
		s.offer(h.pod)
	}
}

// Fail returns a Pod on which a write failed. It is taken after all other Pods until it has changed.
func (s *State) Fail(h *Hold) {
	h.pod.failed = true
	s.Return(h)
}

// Settle releases a Hold with the state of its Pod, from a live read or from the write of the claim.
func (s *State) Settle(h *Hold, live *corev1.Pod) {
	h.pod.taken = false
	s.SeeLive(live)
	s.Fail(h)
}

// LoseToWriter releases the Hold of a Pod that another writer has changed. live is its current state, or nil if unknown. A Pod that still
// looks claimable is not idle until it has changed, because claims would fail on it repeatedly.
func (s *State) LoseToWriter(h *Hold, seen, live *corev1.Pod) {
	h.pod.lostVersion = versionOf(seen)
	if live == nil {
		s.Fail(h)
		return
	}
	h.pod.lostVersion = versionOf(live)
	s.Settle(h, live)
}

// Drop releases the Hold of a Pod that is gone.
func (s *State) Drop(h *Hold) {
	h.pod.taken = false
	if s.pods[h.pod.object.UID] == h.pod {
		s.Forget(h.pod.object)
	}
}
