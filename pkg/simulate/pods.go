// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"container/list"
	"fmt"
	"math"
	"slices"
	"time"

	"navix.sh/atoll/pkg/scalepolicy"
)

// podState is a Pod's phase.
type podState uint8

const (
	starting podState = iota
	idle
	running
	stopping
	podStates = iota
)

func (s podState) String() string { return [...]string{"starting", "idle", "running", "stopping"}[s] }

// pod is an existing Pod; a deleted Pod is dropped.
type pod struct {
	name    string
	state   podState
	since   time.Duration // when it entered its state
	marked  bool          // chosen for removal
	idleFor time.Duration // how long the autoscaler had seen it idle when it was marked; below 0: the pool marked it
	mark    time.Duration // when it was marked
	gone    bool
	place   *list.Element // in the pool's idle Pods
	life    uint64        // counts state changes, so that an action scheduled for an earlier state is skipped
}

// pool is a member, its Pods and its claims.
type pool struct {
	Pool
	world *world
	index int

	replicas int32 // in the Env
	applied  int32 // in the pool
	podSet
	queue      list.List     // of *waiting
	lastCreate time.Duration // of the last claim; below 0: none yet
	refusedAt  time.Duration // when the API server last refused a Pod; below 0: never
	cache      *cache
	scaling
	planned bool // a reconcile is scheduled
	tally
}

// podSet is a pool's Pods.
type podSet struct {
	pods   []*pod
	counts [podStates]int32
	idle   list.List // of *pod, in the order in which claims take them
	count  int       // Pods created so far
}

// scaling is the autoscaler's state of a pool.
type scaling struct {
	loop           *loop // nil: the pool is in no group
	canGrow        bool
	saw            int32 // running Pods at the last decision
	memo           memo
	surplus        surplus
	contest        contest
	saturatedUntil time.Time
}

// tally collects what a run reports about a pool.
type tally struct {
	out       *PoolRun
	accounted time.Duration
	longest   int32 // longest queue within this step
}

// surplus records since when a pool has more Pods than replicas.
type surplus struct {
	is    bool
	of    int32
	since time.Duration
}

func (w *world) newPool(i int) *pool {
	of := w.plan.Env.Pools[i]
	p := &pool{Pool: of, world: w, index: i, replicas: of.Replicas, applied: of.Replicas, lastCreate: -1, refusedAt: -1}
	p.out = &w.run.Pools[i]
	p.out.Pool, p.out.Reasons, p.out.Refused = of, map[string]int{}, map[string]int{}
	p.cache = newCache(p)
	for range of.Replicas {
		n := p.create()
		n.state = idle
		p.counts[idle]++
		n.place = p.idle.PushBack(n)
	}
	p.cache.relistNow()
	return p
}

func (p *pool) create() *pod {
	p.count++
	n := &pod{name: fmt.Sprintf("%s-%05d", p.Name, p.count), since: p.world.now}
	p.pods = append(p.pods, n)
	return n
}

func (p *pool) held() int32 { return int32(len(p.pods)) }

func (p *pool) current() Point {
	return Point{p.replicas, p.counts[starting] + p.counts[stopping], p.counts[idle], p.counts[running], int32(p.queue.Len())}
}

// account must be called before counts change.
func (p *pool) account() {
	for s, n := range p.counts {
		p.out.PodTime[s] += time.Duration(n) * (p.world.now - p.accounted)
	}
	p.accounted = p.world.now
}

// changed must be called after counts, the queue or replicas change.
func (p *pool) changed() {
	is := p.current()
	p.longest = max(p.longest, is.Queue)
	p.out.Peak, p.out.Wanted = max(p.out.Peak, p.held()), max(p.out.Wanted, is.Running+is.Queue)
}

// sample ends a step.
func (p *pool) sample() {
	is := p.current()
	is.Queue, p.longest = max(is.Queue, p.longest), is.Queue
	p.out.Points = append(p.out.Points, is)
}

// setReplicas models the autoscaler's write to the Env. The Env's reconciler copies the value to the pool.
func (p *pool) setReplicas(n int32) {
	p.replicas = n
	p.changed()
	p.cache.envChanged()
	p.world.in(p.world.plan.Model.Apply.draw(p.world.caches), p.apply)
}

func (p *pool) apply() {
	p.applied = p.replicas
	p.cache.poolChanged()
	p.reconcile()
}

func (p *pool) reconcileSoon() {
	if p.planned {
		return
	}
	p.planned = true
	p.world.in(p.world.plan.Model.CacheLag.draw(p.world.caches), func() {
		p.planned = false
		p.reconcile()
	})
}

// reconcile models the pool reconciler as far as counts go. The reconciler knows its own writes, and creates no Pod while its cache still
// shows a deleted one.
func (p *pool) reconcile() {
	if p.world.active(WorkerAway, p.Cluster) != nil {
		return // it reconciles everything when the worker is back
	}
	switch missing := p.applied - p.held(); {
	case missing == 0:
		p.unmarkForgotten()
	case missing > 0:
		p.unmarkForgotten()
		if n := p.applied - max(p.held(), int32(len(p.cache.pods))); n > 0 {
			p.createPods(n)
		}
	default:
		if !p.surplus.is || p.surplus.of != p.applied {
			p.surplus.is, p.surplus.of, p.surplus.since = true, p.applied, p.world.now
		}
		p.removeMarked(-missing)
		return
	}
	p.surplus.is = false
}

func (p *pool) createPods(n int32) {
	room := int32(math.MaxInt32)
	if d := p.world.active(NamespaceQuota, p.Cluster); d != nil {
		room = max(0, d.Limit-p.world.alive(p.Cluster))
	}
	p.account()
	for range min(n, room) {
		made := p.create()
		p.counts[starting]++
		p.cache.podChanged(made)
		p.later(made, p.slowed(p.world.plan.Model.PodStart), func() { p.becomeIdle(made) })
	}
	p.changed()
	if n > room {
		p.refusedAt = p.world.now
		p.cache.onChange(settle)
		p.world.in(refusalBackoff, p.reconcileSoon)
	}
}

// mark marks the chosen Pods that are still idle, and removes the marks that the decision revokes.
func (p *pool) mark(d *scalepolicy.MemberDecision) {
	n := int32(0)
	for _, chosen := range d.Mark {
		one := p.named(chosen.Name)
		if one == nil || !one.removable() {
			continue
		}
		if !one.marked {
			n++
		}
		one.marked, one.mark, one.idleFor = true, p.world.now, chosen.IdleFor
		p.cache.podChanged(one)
	}
	if n > 0 {
		p.event(Event{Kind: Marked, From: p.replicas, To: p.replicas - n, Reason: string(d.Reason), Text: d.Text})
	}
	for _, chosen := range d.Unmark {
		if one := p.named(chosen.Name); one != nil && one.removable() {
			p.unmark(one)
		}
	}
}

// removable reports whether the Pod has no sandbox, and has had none since its reset.
func (n *pod) removable() bool { return n.state == idle || n.state == starting }

func (p *pool) unmark(n *pod) {
	if n.marked {
		n.marked = false
		p.cache.podChanged(n)
	}
}

func (p *pool) named(name string) *pod {
	for _, n := range p.pods {
		if n.name == name {
			return n
		}
	}
	return nil
}

// ownMarks is how long an autoscaled pool has surplus Pods before it marks some itself. It waits because the autoscaler marks Pods first:
// if marks are missing, a marked Pod was claimed at the last moment, and replicas will be raised again.
const ownMarks = 10 * time.Second

func (p *pool) autoscaled() bool { return p.loop != nil && p.loop.policy.Enabled }

// followUp is how long after the end of a mark's window the pool removes the mark, if replicas were not lowered.
const followUp = 30 * time.Second

func (p *pool) unmarkForgotten() {
	for _, n := range p.pods {
		if !n.marked {
			continue
		}
		if left := n.mark + p.window() + followUp - p.world.now; left > 0 && p.loop != nil {
			p.world.in(left, p.reconcileSoon)
			continue
		}
		p.unmark(n)
	}
}

// removeMarked deletes surplus idle Pods that are marked and whose window has passed. If marks are missing, for example after a manual
// edit, the pool sets them.
func (p *pool) removeMarked(surplus int32) {
	window := p.window()
	var marked, free []*pod
	for _, n := range p.pods {
		switch {
		case !n.removable():
		case n.marked:
			marked = append(marked, n)
		default:
			free = append(free, n)
		}
	}
	slices.SortStableFunc(marked, func(a, b *pod) int { return cmp.Compare(a.mark, b.mark) })
	for _, n := range marked[:min(len(marked), int(surplus))] {
		if left := n.mark + window - p.world.now; left > 0 {
			p.world.in(left, p.reconcileSoon)
			continue
		}
		p.out.Removals = append(p.out.Removals, Removal{
			At: p.world.now, Pod: n.name, State: n.state.String(), Idle: n.idleFor, Marked: n.mark, Replicas: p.applied,
		})
		p.drop(n)
	}
	slices.SortStableFunc(free, func(a, b *pod) int { return cmp.Compare(b.since, a.since) })
	chosen := free[:min(len(free), max(0, int(surplus)-len(marked)))]
	if left := p.surplus.since + ownMarks - p.world.now; len(chosen) > 0 && p.autoscaled() && left > 0 {
		p.world.in(left, p.reconcileSoon)
		return
	}
	if n := int32(len(chosen)); n > 0 {
		p.event(Event{Kind: Marked, From: p.replicas + n, To: p.replicas, Reason: "Surplus", Text: "there are more Pods than replicas"})
	}
	for _, n := range chosen {
		n.marked, n.mark, n.idleFor = true, p.world.now, -1
		p.cache.podChanged(n)
		p.world.in(window, p.reconcileSoon)
	}
}

// window is the protection window; pools without a group have the default.
func (p *pool) window() time.Duration {
	if p.loop == nil {
		return 10 * time.Second
	}
	return time.Duration(p.loop.policy.ScaleDownPolicy.ProtectionWindowSeconds) * time.Second
}

// saturated is reported to the router. It means that waiting for growth is useless.
func (p *pool) saturated() bool { return p.saturatedUntil.After(p.world.time()) }

// refusalBackoff is how long the pool reconciler waits after the API server refused a Pod.
const refusalBackoff = 10 * time.Second

// slowed draws from a spread, scaled while Pods are slow.
func (p *pool) slowed(s Spread) time.Duration {
	if d := p.world.active(SlowPods, p.Cluster); d != nil {
		s = s.times(d.Factor)
	}
	return s.draw(p.world.pods)
}

// later runs an action on a Pod after a delay, unless the Pod's state has changed by then.
func (p *pool) later(n *pod, in time.Duration, do func()) {
	life := n.life
	p.world.in(in, func() {
		if !n.gone && n.life == life {
			do()
		}
	})
}

// setState moves a Pod to another state.
func (p *pool) setState(n *pod, to podState) {
	p.account()
	p.counts[n.state]--
	p.counts[to]++
	n.state, n.since = to, p.world.now
	n.life++
	p.changed()
	p.cache.podChanged(n)
}

// becomeIdle serves the longest waiting claim with the Pod, or leaves it idle.
func (p *pool) becomeIdle(n *pod) {
	if next := p.nextWaiting(); next != nil {
		p.serve(n, next)
		return
	}
	p.setState(n, idle)
	n.place = p.idle.PushBack(n)
	if p.held() > p.applied {
		p.reconcileSoon()
	}
}

// drop removes a Pod in any state.
func (p *pool) drop(n *pod) {
	p.account()
	if n.place != nil {
		p.idle.Remove(n.place)
		n.place = nil
	}
	p.counts[n.state]--
	n.gone = true
	if at := slices.Index(p.pods, n); at >= 0 {
		p.pods = slices.Delete(p.pods, at, at+1)
	}
	p.changed()
	p.cache.podChanged(n)
}

// lose removes a node with its share of the Pods.
func (p *pool) lose(share float64) {
	for _, n := range slices.Clone(p.pods) {
		if p.world.faults.Float64() >= share {
			continue
		}
		if n.state == running {
			p.out.Lost++
		}
		p.drop(n)
	}
	p.reconcileSoon()
}
