// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/autoscale"
)

// react is how long the worker takes from an event to a decision. Events in between are part of it.
var react = Spread{20 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond}

// loop is the worker of one cluster, as far as one scaling group goes: it gathers, decides, acts and reports.
type loop struct {
	world   *world
	cluster string
	policy  v1alpha1.EnvAutoscalingGroup
	pools   []*pool
	planned bool
	again   uint64 // counts plans to look again: a later one replaces an earlier
	started time.Duration
	said    []autoscale.Reason // by member, what was last said of it
}

func (w *world) startLoops() {
	for i := range w.plan.Env.Groups {
		for _, id := range w.plan.Env.clusters() {
			l := &loop{world: w, cluster: id, policy: w.plan.Env.Groups[i]}
			for _, p := range w.pools {
				if p.Cluster == id && p.Config.ScalingGroup == l.policy.Name {
					l.pools = append(l.pools, p)
					p.loop, p.cache.onChange = l, l.wake
				}
			}
			if len(l.pools) > 0 {
				l.said = make([]autoscale.Reason, len(l.pools))
				w.loops = append(w.loops, l)
				l.wake()
				l.resync()
			}
		}
	}
}

func (l *loop) wake() {
	if l.planned {
		return
	}
	l.planned = true
	l.world.in(react.draw(l.world.caches), func() {
		l.planned = false
		l.decide()
	})
}

func (l *loop) resync() {
	l.world.in(l.world.plan.Model.Resync, func() {
		l.wake()
		l.resync()
	})
}

// restart is a new process: what it knows is what is written.
func (l *loop) restart() {
	l.started = l.world.now
	for _, p := range l.pools {
		p.cache.relist()
		p.reconcileSoon()
	}
}

func (l *loop) decide() {
	if l.world.active(WorkerAway, l.cluster) != nil {
		return
	}
	for _, p := range l.pools {
		if p.cache.unseen > 0 && !l.world.plan.forgetful {
			return
		}
	}
	group := l.gather()
	decision := l.world.plan.decide(group)
	l.world.run.Decisions++
	for i := range decision.Members {
		l.act(i, &group.Members[i], &decision.Members[i])
	}
	l.again++
	if n := l.again; decision.Again > 0 {
		l.world.in(decision.Again, func() {
			if n == l.again {
				l.wake()
			}
		})
	}
}

// gather sees what the caches show, and of claims what the process itself knows.
func (l *loop) gather() autoscale.Group {
	g := autoscale.Group{ClusterID: l.cluster, Policy: l.policy, Now: l.world.time(), Members: make([]autoscale.Member, len(l.pools))}
	for i, p := range l.pools {
		m := &g.Members[i]
		*m = autoscale.Member{
			Name: p.Name, Replicas: p.cache.replicas,
			MinReplicas: p.Config.MinReplicas, MaxReplicas: p.Config.MaxReplicas,
			ScaleUpPriority: p.Config.EffectiveScaleUpPriority(), ScaleDownPriority: p.Config.EffectiveScaleDownPriority(),
			Queue: int32(p.queue.Len()), Status: p.cache.status,
		}
		if p.lastCreate >= 0 {
			m.LastCreate = epoch.Add(p.lastCreate)
		}
		if p.refusedAt >= 0 {
			m.Refused = &autoscale.Refusal{At: epoch.Add(p.refusedAt), Message: "exceeded quota"}
		}
		l.count(p, m)
	}
	return g
}

func (l *loop) count(p *pool, m *autoscale.Member) {
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
		case idle:
			m.Pods.ReadyIdle++
		}
		m.Pods.Idle++
		one := autoscale.IdlePod{Name: name, IdleFor: l.world.now - s.since, Marked: s.marked}
		if s.marked {
			one.MarkedFor = l.world.now - max(s.mark, l.started)
		}
		m.IdlePods = append(m.IdlePods, one)
	}
	m.Provisioning += max(0, m.Replicas-m.Pods.Live())
}

// act carries out what was decided for one member.
func (l *loop) act(i int, m *autoscale.Member, d *autoscale.MemberDecision) {
	p := l.pools[i]
	p.saw = m.Pods.Running
	p.canGrow, p.saturatedUntil = d.CanGrow, d.SaturatedUntil
	status := d.Status
	switch d.Direction {
	case autoscale.Up:
		status = l.grow(i, d, status)
	case autoscale.Down:
		if p.write(d.From, d.To) {
			l.note(i, Shrank, d, d.To)
			status = autoscale.RecordDown(status, l.world.time())
		}
	default:
		l.note(i, Held, d, d.To)
	}
	p.mark(d)
	if !equality.Semantic.DeepEqual(status, m.Status) {
		p.cache.writeStatus(status)
	}
}

// grow asks admission where that is due, and writes what it admits.
func (l *loop) grow(i int, d *autoscale.MemberDecision, status *v1alpha1.PoolAutoScalingStatus) *v1alpha1.PoolAutoScalingStatus {
	p := l.pools[i]
	outcome := autoscale.Outcome{From: d.From, To: d.To, Result: v1alpha1.PoolScaleUpAttemptEnough}
	if d.Probe {
		var err error
		if outcome, err = autoscale.Search(context.Background(), max(d.From, d.Floor), d.To, l.ask(p, d.From)); err != nil {
			return status
		}
		p.event(Event{Kind: Probed, From: d.From, To: outcome.To, Asked: d.To,
			Reason: string(outcome.Result), Text: outcome.Message,
		})
	}
	if !p.write(d.From, outcome.To) {
		return status
	}
	l.note(i, Grew, d, outcome.To)
	return autoscale.Record(status, outcome, l.world.time())
}

// ask is admission: it says yes or no to a number of replicas.
func (l *loop) ask(p *pool, from int32) autoscale.Ask {
	return func(_ context.Context, target int32) (autoscale.Answer, error) {
		if l.world.active(AdmissionFails, l.cluster) != nil {
			return autoscale.Answer{}, errors.New("admission does not answer")
		}
		limit := int32(math.MaxInt32)
		if quota := l.world.plan.Model.Quota; quota >= 0 {
			limit = quota
		}
		if d := l.world.active(TeamQuota, l.cluster); d != nil {
			limit = min(limit, d.Limit)
		}
		others := int32(0)
		for _, o := range l.world.pools {
			if o != p && o.Cluster == l.cluster {
				others += o.replicas
			}
		}
		if target <= limit-others {
			return autoscale.Answer{Admitted: target}, nil
		}
		return autoscale.Answer{Admitted: from, Message: fmt.Sprintf("the team's quota is %d Pods", limit)}, nil
	}
}

// write is the patch of replicas, which tests the value that the decision was made for. One that fails the test is made up
// for once the cache shows what there is.
func (p *pool) write(from, to int32) bool {
	if p.replicas != from {
		return false
	}
	if to != from {
		p.setReplicas(to)
		p.cache.expect()
	}
	return true
}

// note remembers a change, and of what held one back the first time that it did.
func (l *loop) note(i int, kind EventKind, d *autoscale.MemberDecision, to int32) {
	p := l.pools[i]
	if kind == Held && l.said[i] == d.Reason {
		return
	}
	l.said[i] = d.Reason
	p.out.Reasons[string(d.Reason)]++
	if kind == Grew && to == d.From {
		return // admission granted nothing
	}
	p.event(Event{Kind: kind, From: d.From, To: to, Busy: p.saw, Reason: string(d.Reason), Text: d.Text})
}
