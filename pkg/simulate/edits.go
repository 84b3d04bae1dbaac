// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"
)

// contestWindow is how long after a value that another writer set it counts as coming back.
const contestWindow = 5 * time.Minute

// contest is what the worker remembers of edits of a pool's replicas: a value is undone once, and let stand if it comes back.
type contest struct {
	known, contested bool
	value            int32
	at               time.Duration
}

// edit sets a pool's replicas as a user would by hand, or a controller that has the manifest.
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

// settleEdit is the Env's reconciler, which finds replicas in the Env that the pool does not have and no controller here has written.
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
