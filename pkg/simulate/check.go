// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"
	"time"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/scalepolicy"
)

// tolerance is by how much a cooldown may appear too short, because times in objects have whole seconds.
const tolerance = time.Second

// Violation is a rule that a run broke.
type Violation struct {
	At   time.Duration
	Pool string
	Rule string
	Text string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s %s %s: %s", clock(v.At), v.Pool, v.Rule, v.Text)
}

// Check checks a run against the rules that hold for every run: the policy's cooldowns, floors, ceilings and windows, and that no running
// sandbox is removed.
func (r *Run) Check() []Violation {
	c := &checker{run: r}
	for i := range r.Pools {
		group := r.group(&r.Pools[i])
		if group == nil {
			continue
		}
		c.cooldowns(i, group)
		c.windows(i, group)
		c.limits(i, group)
		c.removals(i, group)
	}
	c.groups()
	return c.found
}

type checker struct {
	run   *Run
	found []Violation
}

func (c *checker) broken(at time.Duration, pool int, rule, format string, args ...any) {
	name := ""
	if pool >= 0 {
		name = c.run.Pools[pool].Name
	}
	c.found = append(c.found, Violation{at, name, rule, fmt.Sprintf(format, args...)})
}

func (r *Run) group(p *PoolRun) *v1alpha1.EnvAutoscalingGroup {
	for i := range r.Plan.Env.Groups {
		if g := &r.Plan.Env.Groups[i]; g.Name == p.Config.ScalingGroup {
			return g
		}
	}
	return nil
}

// cooldowns: no probe while saturated, no step within the success cooldown, no second shrinking within the stabilization.
func (c *checker) cooldowns(pool int, g *v1alpha1.EnvAutoscalingGroup) {
	var grew, shrank, refused *Event
	after := func(e, last *Event, least int32, rule string) {
		if last != nil && e.At-last.At < time.Duration(least)*time.Second-tolerance {
			c.broken(e.At, pool, rule, "%s after %s, not %d s", e.At-last.At, last.Reason, least)
		}
	}
	for i := range c.run.Events {
		e := &c.run.Events[i]
		if e.Pool != pool {
			continue
		}
		switch e.Kind {
		case Probed:
			after(e, refused, g.ScaleUpPolicy.SaturationCooldownSeconds, "probe while saturated")
			if refused = nil; e.Reason != string(v1alpha1.PoolScaleUpAttemptEnough) {
				refused = e
			}
		case Grew:
			if e.Reason == string(scalepolicy.ReasonUnmetDemand) || e.Reason == string(scalepolicy.ReasonIdleZero) {
				after(e, grew, g.ScaleUpPolicy.CooldownSeconds, "success cooldown")
				grew = e
			}
		case Shrank:
			after(e, shrank, g.ScaleDownPolicy.StabilizationSeconds, "stabilization")
			shrank = e
		}
	}
}

// windows: replicas go down by no more Pods than were marked, and only after the protection window. Replicas whose Pods the API
// server refuses go down too, so runs with such refusals are skipped.
func (c *checker) windows(pool int, g *v1alpha1.EnvAutoscalingGroup) {
	if slices.ContainsFunc(c.run.Plan.Disturbances, func(d Disturbance) bool { return d.Kind == NamespaceQuota }) {
		return
	}
	window := time.Duration(g.ScaleDownPolicy.ProtectionWindowSeconds) * time.Second
	var marks []*Event
	ripe := int32(0)
	for i := range c.run.Events {
		e := &c.run.Events[i]
		for len(marks) > 0 && marks[0].At+window <= e.At {
			ripe += marks[0].From - marks[0].To
			marks = marks[1:]
		}
		switch {
		case e.Pool != pool:
		case e.Kind == Marked:
			marks = append(marks, e)
		case e.Kind == Shrank:
			if ripe -= e.From - e.To; ripe < 0 {
				c.broken(e.At, pool, "protection window", "%d → %d, and %d of them were not marked for %s", e.From, e.To, -ripe, window)
				ripe = 0
			}
		}
	}
}

// limits: a member grows past no ceiling, and shrinks neither below its floor nor below its running Pods.
func (c *checker) limits(pool int, g *v1alpha1.EnvAutoscalingGroup) {
	config := &c.run.Pools[pool].Config
	for i := range c.run.Events {
		e := &c.run.Events[i]
		switch {
		case e.Pool != pool:
		case !g.Enabled && (e.Kind == Grew || e.Kind == Shrank):
			c.broken(e.At, pool, "enabled", "%d → %d, and the group is off", e.From, e.To)
		case e.Kind == Grew && config.MaxReplicas != nil && e.To > *config.MaxReplicas && e.Reason != string(scalepolicy.ReasonLivePods):
			c.broken(e.At, pool, "member ceiling", "%d → %d above %d", e.From, e.To, *config.MaxReplicas)
		case e.Kind == Shrank && config.MinReplicas != nil && e.To < *config.MinReplicas:
			c.broken(e.At, pool, "member floor", "%d → %d below %d", e.From, e.To, *config.MinReplicas)
		case e.Kind == Shrank && e.To < e.Busy:
			c.broken(e.At, pool, "running Pods kept", "%d → %d, and %d run", e.From, e.To, e.Busy)
		}
	}
}

// removals: only idle Pods are removed, after the window. Those that the autoscaler chose are removed only after the idle
// timeout.
func (c *checker) removals(pool int, g *v1alpha1.EnvAutoscalingGroup) {
	window := time.Duration(g.ScaleDownPolicy.ProtectionWindowSeconds) * time.Second
	timeout := time.Duration(g.ScaleDownPolicy.IdleTimeoutSeconds) * time.Second
	for _, d := range c.run.Pools[pool].Removals {
		if d.State != idle.String() && d.State != starting.String() {
			c.broken(d.At, pool, "running Pods kept", "%s is removed while it is %s", d.Pod, d.State)
		}
		if d.At-d.Marked < window {
			c.broken(d.At, pool, "protection window", "%s is removed %s after its mark, not %s", d.Pod, d.At-d.Marked, window)
		}
		if d.Idle >= 0 && d.Idle < timeout {
			c.broken(d.At, pool, "idle timeout", "%s is removed after %s, not %s", d.Pod, d.Idle, timeout)
		}
	}
}

// groups: the replicas of a group grow past no ceiling, and shrink below no floor, in each cluster.
func (c *checker) groups() {
	type key struct{ cluster, group string }
	sums, replicas := map[key]int32{}, make([]int32, len(c.run.Pools))
	of := func(pool int) key { return key{c.run.Pools[pool].Cluster, c.run.Pools[pool].Config.ScalingGroup} }
	for i := range c.run.Pools {
		replicas[i] = c.run.Pools[i].Replicas
		sums[of(i)] += replicas[i]
	}
	for i := range c.run.Events {
		e := &c.run.Events[i]
		if e.Pool < 0 || e.Kind != Grew && e.Kind != Shrank && e.Kind != Edited {
			continue
		}
		k, g := of(e.Pool), c.run.group(&c.run.Pools[e.Pool])
		sums[k] += e.To - replicas[e.Pool]
		replicas[e.Pool] = e.To
		switch {
		case g == nil || e.Kind == Edited:
		case e.Kind == Grew && g.MaxReplicas != nil && sums[k] > *g.MaxReplicas && e.Reason != string(scalepolicy.ReasonLivePods):
			c.broken(e.At, e.Pool, "group ceiling", "%d → %d, which makes %d of %d", e.From, e.To, sums[k], *g.MaxReplicas)
		case e.Kind == Shrank && g.MinReplicas != nil && sums[k] < *g.MinReplicas:
			c.broken(e.At, e.Pool, "group floor", "%d → %d, which makes %d of %d", e.From, e.To, sums[k], *g.MinReplicas)
		}
	}
}
