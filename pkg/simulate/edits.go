// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"
)

// contestWindow is how long after an edit the same value counts as a repetition of that edit.
const contestWindow = 5 * time.Minute

// contest is the worker's record of edits of a pool's replicas. The worker reverts a value once, and keeps it if it is set again.
type contest struct {
	known, contested bool
	value            int32
	at               time.Duration
}

// edit sets a pool's replicas, like a user or a controller that applies the manifest.
func (w *world) edit(d *Disturbance) {
	i := max(0, slices.IndexFunc(w.pools, func(p *pool) bool { return p.Name == d.Pool }))
	if p := w.pools[i]; p.replicas != d.Replicas {
		p.edit(d.Replicas)
	}
	if next := w.now + d.Every; d.Every > 0 && next < d.To {
		w.when(next, func() { w.edit(d) })
	}
}

func (p *pool) edit(to int32) {
	p.event(Event{Kind: Edited, From: p.replicas, To: to, Reason: string(ManualEdit), Text: "edited by hand"})
	p.replicas = to
	p.changed()
	p.cache.envChanged()
	p.world.in(p.world.plan.Model.Apply.draw(p.world.caches), p.settleEdit)
}

// settleEdit models the Env's reconciler, which finds a replica count in the Env that differs from the pool's and that the autoscaler did
// not write.
func (p *pool) settleEdit() {
	if p.world.active(WorkerAway, p.Cluster) != nil {
		p.world.in(p.world.plan.Model.Resync, p.settleEdit)
		return
	}
	c := &p.contest
	if c.known && !c.contested && p.world.now-c.at > contestWindow {
		*c = contest{}
	}
	switch {
	case !p.autoscaled() || c.contested:
		p.apply()
	case c.known && c.value == p.replicas:
		c.contested = true
		p.apply()
	default:
		*c = contest{known: true, value: p.replicas, at: p.world.now}
		p.event(Event{Kind: Edited, From: p.replicas, To: p.applied, Reason: "Undone", Text: "the autoscaler's value is put back"})
		p.replicas = p.applied
		p.changed()
		p.cache.envChanged()
	}
}
