// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxes"
)

// seen handles a changed Pod.
func (l locked) seen(c *inventory.Change) {
	if c.Kind == inventory.Gone {
		delete(l.unjudged, c.Sandbox)
		return
	}
	late := l.isLateWrite(c)
	if late {
		l.unjudged[c.Pod.Sandbox()] = struct{}{}
	}
	if ended := l.enforce(c.Pod); late && !ended && l.isHubs(c.Pod) {
		l.lateWrites++
		l.opts.Log.Info("A sandbox appeared that no claim under way here has written; the hub decides whether it stays",
			"sandbox", c.Pod.Sandbox(), "pod", c.Pod.Object().Name, "claimKey", c.Pod.KeyHash())
	}
}

// isLateWrite reports whether a live sandbox with a key has appeared that no claim under way here wrote. An earlier leader wrote it, or
// this one without getting a response. No caller has received it: this leader lists the Pods before it serves, and did not see it then.
func (l locked) isLateWrite(c *inventory.Change) bool {
	p := c.Pod
	if l.Leading() == nil || p.KeyHash() == "" || p.Sandbox() == c.Sandbox || !p.Live() {
		return false
	}
	o := l.ops[p.KeyHash()]
	return o == nil || o.id != p.Sandbox()
}

// isSuperseded reports whether the key of a late write stands for another sandbox of the same or a later attempt: one that has ended, or
// that of a claim under way.
func (l locked) isSuperseded(p *inventory.Pod) bool {
	attempt := sandbox.Read(p.Object()).Attempt
	if ended, of := l.sandboxes.EndedUnder(&l.View, p.KeyHash()); ended != p.Sandbox() && of >= attempt {
		return true
	}
	o := l.ops[p.KeyHash()]
	return o != nil && o.id != p.Sandbox() && o.claim.Attempt >= attempt
}

// isHubs reports whether a sandbox with a key was claimed through the hub.
func (l locked) isHubs(p *inventory.Pod) bool {
	of := sandbox.Read(p.Object()).Claim
	return !l.sandboxes.IsLocal(p.Object().Namespace, &of)
}

// LateWrites returns how many late writes of the hub's claims stay, as far as this worker knows. They may appear after the key index was
// sent, and only the hub knows whether a claim was canceled at an earlier leader.
func (s *Service) LateWrites() (n uint64) {
	s.view(func(_ *inventory.View, shared *shared) { n = shared.lateWrites })
	return n
}

// enforce ends a live sandbox that must not exist, and reports whether it did. A sandbox must not exist if its key was canceled or refused,
// if another Pod holds its key, if a late write made it and its key stands for another sandbox, if no caller received it, or if it had
// ended and came back with a restored etcd. A leader whose lease has lapsed, for example because it hung, ends none until the lease is held
// again: the next leader may have returned that very sandbox.
func (l locked) enforce(p *inventory.Pod) (ended bool) {
	if p.Sandbox() == "" || !p.Live() {
		return false
	}
	if !l.Serving() {
		l.ReportAgain()
		return false
	}
	_, late := l.unjudged[p.Sandbox()]
	delete(l.unjudged, p.Sandbox()) // from now on a call may return it
	if late && l.isSuperseded(p) {
		l.Disown(p.Sandbox())
	}
	if l.Disowned(p.Sandbox()) {
		l.sandboxes.Dispose(l.State, p.Sandbox(), sandboxes.Abandoned())
		return true
	}
	// Not a Pod that is being deleted, whose record is stored before it is gone, nor one whose release is under way. A view that lags shows an
	// old state.
	if p.Object().DeletionTimestamp == nil && p.Released() == nil && p.Current() && l.sandboxes.HasEnded(p.Sandbox()) {
		l.cameBack(p)
		return true
	}
	if p.KeyHash() == "" {
		return false
	}
	refused, ok := l.refused.Get(l.clock.Now(), p.KeyHash())
	if ok && sandbox.Read(p.Object()).Attempt <= refused.attempt {
		end := sandboxes.Canceled("Canceled", "the claim had been refused or canceled when the Pod was written")
		l.sandboxes.Dispose(l.State, p.Sandbox(), end)
		return true
	}
	return l.keepOne(p)
}

// keepOne ends all Pods with the key of p except its holder, and reports whether it ends p.
func (l locked) keepOne(p *inventory.Pod) (ended bool) {
	if len(l.WithKey(p.KeyHash())) < 2 {
		return false
	}
	stays := l.Holder(p.KeyHash())
	if stays == nil {
		return false
	}
	end := sandboxes.Canceled("DuplicateKey", "sandbox "+stays.Sandbox()+" has the same claim key and stays")
	for _, other := range l.WithKey(p.KeyHash()) {
		if other != stays && other.Live() {
			l.sandboxes.Dispose(l.State, other.Sandbox(), end)
		}
	}
	return p != stays
}

// cameBack ends a sandbox that had ended and exists again because etcd was restored from a backup. If the restore was not known yet,
// cameBack reports it instead: idle Pods may belong to another tenant as well.
func (l locked) cameBack(p *inventory.Pod) {
	if !sandbox.NeverReset(p.Object()) {
		l.opts.Log.Error(inventory.ErrSetBack, "Serving nothing from now on: a sandbox that has ended exists again",
			"sandbox", p.Sandbox(), "pod", p.Object().Name)
		l.FoundSetBack()
		return
	}
	l.sandboxes.Dispose(l.State, p.Sandbox(), sandbox.End{StopReason: v1alpha1.SandboxStopReasonReleased})
}
