// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"
)

// contestWindow is how long after an edit the same value counts as coming back.
const contestWindow = 5 * time.Minute

// contest is the worker's memory of edits of a pool's replicas: it reverts a value once, and keeps it if it comes back.
type contest struct {
	known, contested bool
	value            int32
	at               time.Duration
}

// edit sets a pool's replicas, as a user by hand or a controller with the manifest would.
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

// settleEdit models the Env's reconciler, which finds replicas in the Env that the pool lacks and no controller here wrote.
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
