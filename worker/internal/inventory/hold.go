// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	corev1 "k8s.io/api/core/v1"
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
