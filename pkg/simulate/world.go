// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"math/rand/v2"
	"time"

	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/scalepolicy"
)

// epoch is the start of simulated time. Decide gets calendar times, like those in objects.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is the state of a run.
type world struct {
	agenda
	plan *Plan
	run  *Run
	// Each concern has its own source of randomness, so that another policy gets the same claims and equally slow Pods.
	pods, caches, faults, routes *rand.Rand
	pools                        []*pool
	clusters                     map[string]*router.Cluster
	loops                        []*loop
}

// Simulate runs a plan until its end, or until the context ends.
func Simulate(ctx context.Context, plan Plan) (*Run, error) {
	if plan.decide == nil {
		plan.decide = scalepolicy.Decide
	}
	source := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(plan.Seed, stream)) }
	w := &world{
		plan: &plan,
		pods: source(11), caches: source(12), faults: source(13), routes: source(14),
		clusters: map[string]*router.Cluster{},
	}
	w.run = &Run{Plan: plan, Step: stepFor(plan.Duration), Refused: map[string]int{}, Pools: make([]PoolRun, len(plan.Env.Pools))}
	for i := range plan.Env.Pools {
		w.pools = append(w.pools, w.newPool(i))
		if id := plan.Env.Pools[i].Cluster; w.clusters[id] == nil {
			w.clusters[id] = router.NewCluster(id)
		}
	}
	w.startLoops()
	w.planDisturbances()
	w.nextClaim(0)
	w.sampleEvery(w.run.Step)
	if err := w.agenda.run(ctx, plan.Duration); err != nil {
		return nil, err
	}
	for _, p := range w.pools {
		p.account()
		w.run.Waiting += p.queue.Len()
	}
	return w.run, nil
}

// nextClaim schedules one claim at a time, because a trace may have millions.
func (w *world) nextClaim(i int) {
	if i >= len(w.plan.Claims) {
		return
	}
	w.when(w.plan.Claims[i].At, func() {
		w.run.Claims++
		w.claim(&w.plan.Claims[i])
		w.nextClaim(i + 1)
	})
}

func (w *world) sampleEvery(step time.Duration) {
	w.in(step, func() {
		for _, p := range w.pools {
			p.sample()
		}
		w.sampleEvery(step)
	})
}

// active returns the active disturbance of a kind in a cluster.
func (w *world) active(kind Kind, cluster string) *Disturbance {
	for i := range w.plan.Disturbances {
		if d := &w.plan.Disturbances[i]; d.hits(kind, cluster, w.now) {
			return d
		}
	}
	return nil
}

// time returns the current time in the form that objects and decisions have.
func (w *world) time() time.Time { return epoch.Add(w.now) }

// event records an event of a pool.
func (p *pool) event(e Event) {
	e.At, e.Pool = p.world.now, p.index
	p.world.run.event(e)
}

// alive counts the Pods of a cluster.
func (w *world) alive(cluster string) (n int32) {
	for _, p := range w.pools {
		if p.Cluster == cluster {
			n += p.held()
		}
	}
	return n
}

func (w *world) planDisturbances() {
	for i := range w.plan.Disturbances {
		d := &w.plan.Disturbances[i]
		w.when(d.From, func() {
			w.run.event(Event{At: w.now, Kind: Disturb, Pool: -1, Reason: string(d.Kind), Text: d.String()})
			w.begin(d)
		})
		if d.To > d.From && d.To < w.plan.Duration {
			w.when(d.To, func() {
				w.run.event(Event{At: w.now, Kind: Restored, Pool: -1, Reason: string(d.Kind), Text: d.String()})
				w.end(d)
			})
		}
	}
}

// begin applies a disturbance's immediate effect; active covers the rest.
func (w *world) begin(d *Disturbance) {
	switch d.Kind {
	case ManualEdit:
		w.edit(d)
	case NodeLost:
		for _, p := range w.pools {
			if d.Cluster == "" || d.Cluster == p.Cluster {
				p.lose(d.Factor)
			}
		}
	}
}

func (w *world) end(d *Disturbance) {
	for _, p := range w.pools {
		switch {
		case d.Cluster != "" && d.Cluster != p.Cluster:
		case d.Kind == LostUpdates:
			p.cache.relist()
		case d.Kind == NamespaceQuota:
			p.reconcileSoon()
		}
	}
	if d.Kind == WorkerAway {
		for _, l := range w.loops {
			l.restart()
		}
	}
}
