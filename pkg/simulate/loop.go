// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/scalepolicy"
)

// The worker's own constants: how long it gathers changes before a decision, and how long it waits for more claims after the first; how
// long a minor status change must last before it is written; the interval between admission requests; the age at which a Pod is overdue.
const (
	settle          = 250 * time.Millisecond
	firstWaits      = 20 * time.Millisecond
	softDelay       = 5 * time.Second
	betweenAttempts = time.Second
	stuckAfter      = 2 * time.Minute
)

// loop is one cluster's worker for one scaling group: it gathers, decides, acts and reports.
type loop struct {
	world     *world
	cluster   string
	policy    v1alpha1.EnvAutoscalingGroup
	pools     []*pool
	due       time.Duration // when the next decision is scheduled; below 0: none is
	decisions uint64        // counts scheduled decisions, so that a later schedule replaces an earlier one
	again     uint64        // counts scheduled wakes in the same way
	started   time.Duration
}

// memo is the worker's in-memory state of a pool. It is lost when the worker ends.
type memo struct {
	status  *v1alpha1.PoolAutoScalingStatus // current status; the pool's status follows it
	written *v1alpha1.PoolAutoScalingStatus // status in the pool, which outlives the worker
	soft    time.Duration                   // since when the two differ in minor fields only; below 0: they do not differ
	attempt time.Duration                   // when admission was last asked; below 0: never
	said    scalepolicy.Reason              // the last reported reason
}

func (w *world) startLoops() {
	for i := range w.plan.Env.Groups {
		for _, id := range w.plan.Env.clusters() {
			l := &loop{world: w, cluster: id, policy: w.plan.Env.Groups[i], due: -1}
			for _, p := range w.pools {
				if p.Cluster == id && p.Config.ScalingGroup == l.policy.Name {
					l.pools = append(l.pools, p)
					p.loop, p.cache.onChange, p.memo = l, l.wake, memo{soft: -1, attempt: -1}
				}
			}
			if len(l.pools) > 0 {
				w.loops = append(w.loops, l)
				l.wake(0)
				l.resync()
			}
		}
	}
}

// wake schedules a decision, unless an earlier one is scheduled.
func (l *loop) wake(in time.Duration) {
	at := l.world.now + in
	if l.due >= 0 && l.due <= at {
		return
	}
	l.due = at
	l.decisions++
	decision := l.decisions
	l.world.when(at, func() {
		if decision == l.decisions {
			l.due = -1
			l.decide()
		}
	})
}

func (l *loop) resync() {
	l.world.in(l.world.plan.Model.Resync, func() {
		l.wake(0)
		l.resync()
	})
}

// restart models a new worker process, which has only the state that was written.
func (l *loop) restart() {
	l.started = l.world.now
	for _, p := range l.pools {
		p.memo = memo{status: p.memo.written.DeepCopy(), written: p.memo.written, soft: -1, attempt: -1}
		p.contest = contest{}
		p.cache.relist()
		p.reconcileSoon()
	}
}

func (l *loop) decide() {
	if l.world.active(WorkerAway, l.cluster) != nil {
		return
	}
	for _, p := range l.pools {
		if p.cache.behindEnv > 0 {
			return
		}
	}
	group := l.gather()
	decision := l.world.plan.decide(group)
	l.world.run.Decisions++
	again := decision.Again
	for i, p := range l.pools {
		d := &decision.Members[i]
		p.canGrow, p.saturatedUntil, p.saw = d.CanGrow, d.SaturatedUntil, group.Members[i].Pods.Running
		p.memo.status = d.Status
		p.act(d)
		if wait := p.report(); wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	l.again++
	if n := l.again; again > 0 {
		l.world.in(again, func() {
			if n == l.again {
				l.wake(0)
			}
		})
	}
}

// gather reads the caches, and the claims from the worker's memory.
func (l *loop) gather() scalepolicy.Group {
	g := scalepolicy.Group{ClusterID: l.cluster, Policy: l.policy, Now: l.world.time(), Members: make([]scalepolicy.Member, len(l.pools))}
	for i, p := range l.pools {
		m := &g.Members[i]
		*m = scalepolicy.Member{
			Name: p.Name, Replicas: p.cache.replicas,
			MinReplicas: p.Config.MinReplicas, MaxReplicas: p.Config.MaxReplicas,
			ScaleUpPriority: p.Config.EffectiveScaleUpPriority(), ScaleDownPriority: p.Config.EffectiveScaleDownPriority(),
			Queue: int32(p.queue.Len()), Status: p.memo.status, Contested: p.contest.contested,
			Unsettled: p.cache.replicas != p.cache.applied || p.cache.behindPool > 0,
		}
		if p.lastCreate >= 0 {
			m.LastCreate = epoch.Add(p.lastCreate)
		}
		if p.refusedAt >= 0 {
			m.Refused = &scalepolicy.Refusal{At: epoch.Add(p.refusedAt), Message: "exceeded quota"}
		}
		l.count(p, m)
	}
	return g
}

func (l *loop) count(p *pool, m *scalepolicy.Member) {
	for _, name := range p.cache.order {
		s := p.cache.pods[name]
		switch s.state {
		case running:
			m.Pods.Running++
			continue
		case stopping:
			m.Pods.Stopping++
			m.Provisioning++
			continue
		case starting:
			m.Provisioning++
			if l.world.now-s.since > stuckAfter {
				m.Stuck++
			}
		case idle:
			m.Pods.ReadyIdle++
		}
		m.Pods.Idle++
		one := scalepolicy.IdlePod{Name: name, Ready: s.state == idle, IdleFor: l.world.now - s.since, Marked: s.marked}
		if s.marked {
			one.MarkedFor = l.world.now - max(s.noticed, l.started)
		}
		m.IdlePods = append(m.IdlePods, one)
	}
	m.Provisioning += max(0, m.Replicas-m.Pods.Live())
}

// act carries out the decision for one member.
func (p *pool) act(d *scalepolicy.MemberDecision) {
	switch d.Direction {
	case scalepolicy.Up:
		p.grow(d)
	case scalepolicy.Down:
		if p.write(d.From, d.To) {
			p.note(Shrank, d, d.To)
			p.memo.status = scalepolicy.RecordDown(p.memo.status, p.world.time())
		}
	default:
		p.note(Held, d, d.To)
	}
	p.mark(d)
}

// grow asks admission if a request is due, and writes the admitted number.
func (p *pool) grow(d *scalepolicy.MemberDecision) {
	if !d.Probe {
		if p.write(d.From, d.To) {
			p.note(Grew, d, d.To)
		}
		return
	}
	if p.memo.attempt >= 0 && p.world.now-p.memo.attempt < betweenAttempts {
		p.world.in(betweenAttempts, func() { p.loop.wake(0) })
		return
	}
	p.memo.attempt = p.world.now
	growth, err := scalepolicy.Search(context.Background(), d.Floor, d.To, p.ask(d.Floor))
	if err != nil {
		return
	}
	p.event(Event{Kind: Probed, From: d.From, To: growth.To, Asked: d.To, Reason: string(growth.Result), Text: growth.Message})
	if growth.To > d.From {
		if !p.write(d.From, growth.To) {
			return
		}
		p.note(Grew, d, growth.To)
	} else {
		p.note(Probed, d, growth.To)
	}
	p.memo.status = scalepolicy.Record(p.memo.status, growth, p.world.time())
}

// ask models admission: it admits or refuses a number of replicas.
func (p *pool) ask(from int32) scalepolicy.Ask {
	return func(_ context.Context, target int32) (scalepolicy.AdmissionResult, error) {
		if p.world.active(AdmissionFails, p.Cluster) != nil {
			return scalepolicy.AdmissionResult{}, errors.New("admission does not respond")
		}
		limit := int32(math.MaxInt32)
		if quota := p.world.plan.Model.Quota; quota >= 0 {
			limit = quota
		}
		if d := p.world.active(TeamQuota, p.Cluster); d != nil {
			limit = min(limit, d.Limit)
		}
		others := int32(0)
		for _, o := range p.world.pools {
			if o != p && o.Cluster == p.Cluster {
				others += o.replicas
			}
		}
		if target <= limit-others {
			return scalepolicy.AdmissionResult{Admitted: target}, nil
		}
		return scalepolicy.AdmissionResult{Admitted: from, Message: fmt.Sprintf("the team's quota is %d Pods", limit)}, nil
	}
}

// write patches replicas, on the condition that they still have the value that the decision read. If they do not, the next decision follows
// once the cache shows the new value.
func (p *pool) write(from, to int32) bool {
	if p.replicas != from {
		return false
	}
	p.setReplicas(to)
	p.cache.expect(&p.cache.behindEnv)
	return true
}

// report writes a changed status. If it is too early for that, it returns when to retry. The stored times have whole seconds.
func (p *pool) report() (later time.Duration) {
	now, atAll := differ(p.memo.status, p.memo.written)
	switch {
	case !atAll:
		p.memo.soft = -1
		return 0
	case p.cache.behindPool > 0:
		return settle
	case !now && p.memo.soft < 0:
		p.memo.soft = p.world.now
		return softDelay
	case !now && p.world.now-p.memo.soft < softDelay:
		return softDelay - (p.world.now - p.memo.soft)
	}
	p.memo.soft = -1
	p.memo.written = p.memo.status.DeepCopy()
	if s := p.memo.written; s != nil {
		for _, t := range []**metav1.Time{&s.LastScaleUpTime, &s.LastScaleDownTime, &s.IdleZeroSince, &s.LastScaleUpAttemptTime} {
			if *t != nil {
				(*t).Time = (*t).Truncate(time.Second)
			}
		}
	}
	p.out.StatusWrites++
	p.cache.poolChanged()
	p.cache.expect(&p.cache.behindPool)
	return 0
}

// differ reports whether two statuses differ in fields that are written immediately, and whether they differ at all.
func differ(a, b *v1alpha1.PoolAutoScalingStatus) (now, atAll bool) {
	if a == nil || b == nil {
		return a != b, a != b
	}
	other := func(a, b *metav1.Time) bool { return (a == nil) != (b == nil) || a != nil && a.Unix() != b.Unix() }
	now = other(a.LastScaleUpTime, b.LastScaleUpTime) || other(a.LastScaleDownTime, b.LastScaleDownTime) ||
		other(a.LastScaleUpAttemptTime, b.LastScaleUpAttemptTime) ||
		a.LastScaleUpAttemptResult != b.LastScaleUpAttemptResult || a.ScaleUpErrorMessage != b.ScaleUpErrorMessage
	return now, now || other(a.IdleZeroSince, b.IdleZeroSince)
}

// note records a change of replicas, or the first time that a gate stopped one.
func (p *pool) note(kind EventKind, d *scalepolicy.MemberDecision, to int32) {
	if kind == Held && p.memo.said == d.Reason {
		return
	}
	p.memo.said = d.Reason
	p.out.Reasons[string(d.Reason)]++
	if kind != Probed { // Probed has its own event
		p.event(Event{Kind: kind, From: d.From, To: to, Busy: p.saw, Reason: string(d.Reason), Text: d.Text})
	}
}
