// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/scalepolicy"
)

// seeds is the number of runs of the usual policy; the others run once.
const seeds = 4

// envs are policies and shapes that depend on different rules.
func envs() map[string]Env {
	with := func(change func(*v1alpha1.EnvAutoscalingGroup)) Env {
		e := ExampleEnv()
		change(&e.Groups[0])
		return e
	}
	siblings := ExampleEnv()
	siblings.Pools = []Pool{
		{Cluster: "east", Name: "first", Replicas: 5, Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default",
			MinReplicas: ptr.To[int32](4), MaxReplicas: ptr.To[int32](15)}},
		{Cluster: "east", Name: "second", Replicas: 1, Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default", Priority: 10}},
		{Cluster: "west", Name: "third", Replicas: 2, Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default", Priority: 5}},
	}
	siblings.Groups[0].MaxReplicas = ptr.To[int32](25)
	return map[string]Env{
		"default": ExampleEnv(),
		"conservative": with(func(g *v1alpha1.EnvAutoscalingGroup) {
			g.ScaleUpPolicy.Mode, g.ScaleUpPolicy.CooldownSeconds = v1alpha1.PoolScaleUpModeConservative, 5
		}),
		"aggressive":   with(func(g *v1alpha1.EnvAutoscalingGroup) { g.ScaleUpPolicy.Mode = v1alpha1.PoolScaleUpModeAggressive }),
		"reactive":     with(func(g *v1alpha1.EnvAutoscalingGroup) { g.ScaleUpPolicy.IdleThresholdSeconds = 0 }),
		"always ahead": with(func(g *v1alpha1.EnvAutoscalingGroup) { g.ScaleUpPolicy.IdleZeroQuietWindowSeconds = 0 }),
		"hasty": with(func(g *v1alpha1.EnvAutoscalingGroup) {
			g.ScaleUpPolicy.CooldownSeconds, g.ScaleUpPolicy.SaturationCooldownSeconds = 5, 10
			g.ScaleDownPolicy = v1alpha1.PoolScaleDownPolicy{IdleTimeoutSeconds: 30, StabilizationSeconds: 10, ProtectionWindowSeconds: 5}
		}),
		"siblings": siblings,
	}
}

func settings(seed uint64) Settings {
	return Settings{Runs: Typical(5 * time.Minute), Seed: seed}
}

func run(t *testing.T, plan Plan) *Run {
	t.Helper()
	r, err := Simulate(t.Context(), plan)
	must.Succeed(t, err)
	return r
}

func report(t *testing.T, found []Violation) {
	t.Helper()
	for _, v := range found[:min(len(found), 10)] {
		t.Error(v)
	}
}

// TestEveryRunKeepsTheRules runs all scenarios with all policies and some seeds.
func TestEveryRunKeepsTheRules(t *testing.T) {
	for name, env := range envs() {
		for _, s := range Scenarios() {
			t.Run(name+"/"+s.Name, func(t *testing.T) {
				n := uint64(1)
				if name == "default" {
					n = seeds
				}
				for seed := range n {
					set := settings(seed)
					set.Duration = s.Duration / 2
					r := run(t, s.Plan(env, set))
					report(t, r.Check())
					if r.Omitted > 0 || r.Decisions == 0 {
						t.Errorf("%d decisions, %d events left out", r.Decisions, r.Omitted)
					}
				}
			})
		}
	}
}

// steady is a constant demand for that many sandboxes.
func steady(env Env, demand float64, seed uint64) Plan {
	load := NewLoad(seed, Exactly(5*time.Minute)).Steady(0, 6*time.Hour, demand)
	return Plan{Name: "steady", Env: env, Claims: load.Claims(), Model: DefaultModel(), Duration: 6 * time.Hour, Seed: seed}
}

func mode(env Env) v1alpha1.PoolScaleUpMode { return env.Groups[0].ScaleUpPolicy.Mode }

func TestConstantLoadSettles(t *testing.T) {
	for name, env := range envs() {
		if len(env.Pools) > 1 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(seeds) {
				r := run(t, steady(env, 20, seed))
				report(t, r.Check())
				report(t, settled(r, 20))
			}
		})
	}
}

// settled: after an hour the first pool does not grow once it has shrunk, and it never grows beyond the first step above the demand.
func settled(r *Run, demand int32) []Violation {
	c := &checker{run: r}
	from, to := time.Hour, r.Plan.Duration
	turns, shrank := 0, false
	for i := range r.Events {
		e := &r.Events[i]
		switch {
		case e.Pool != 0 || e.At < from || e.At >= to:
		case e.Kind == Shrank:
			shrank = true
		case e.Kind == Grew && shrank:
			turns, shrank = turns+1, false
		}
	}
	if turns > 0 {
		c.broken(from, 0, "no oscillation", "grew %d times after it had shrunk, until %s", turns, clock(to))
	}
	most := stepAbove(mode(r.Plan.Env), demand+1)
	for i := range r.Events {
		if e := &r.Events[i]; e.Pool == 0 && e.Kind == Grew && e.To > most {
			c.broken(e.At, 0, "growth ends", "%d → %d, and demand and buffer are %d", e.From, e.To, most)
		}
	}
	return c.found
}

// stepAbove returns the greatest size that a pool reaches for a demand, which is the first step above the demand.
func stepAbove(mode v1alpha1.PoolScaleUpMode, demand int32) int32 {
	switch mode {
	case v1alpha1.PoolScaleUpModeConservative:
		return demand + 1
	case v1alpha1.PoolScaleUpModeAggressive:
		return 2 * demand
	}
	return demand + max(1, (demand+1)/2)
}

// The time from a disturbance until no claim waits is bounded.
func TestRecovery(t *testing.T) {
	for _, name := range []string{"refusals", "slow-pods", "lost-updates", "manual-edits"} {
		t.Run(name, func(t *testing.T) {
			scenario, err := FindScenario(name)
			must.Succeed(t, err)
			for seed := range uint64(seeds) {
				r := run(t, scenario.Plan(ExampleEnv(), settings(seed)))
				report(t, recovered(r, 5*time.Minute))
			}
		})
	}
}

// recovered checks each disturbance, unless the next one has begun by then.
func recovered(r *Run, within time.Duration) (found []Violation) {
	for i := range r.Plan.Disturbances {
		d := &r.Plan.Disturbances[i]
		over := max(d.From, d.To)
		if slices.ContainsFunc(r.Plan.Disturbances, func(o Disturbance) bool { return o.From <= over && over < o.To }) {
			continue
		}
		if took := emptyAgain(r, over, time.Minute); took < 0 || took > within {
			found = append(found, Violation{over, "", "recovery", fmt.Sprintf("%s after %s", took, d)})
		}
	}
	return found
}

// emptyAgain returns how long after the given time the queues are empty and stay empty for at least calm. It returns a negative value if
// that never happens.
func emptyAgain(r *Run, after, calm time.Duration) time.Duration {
	total := r.Total("")
	since := time.Duration(-1)
	for i := range total {
		at := time.Duration(i+1) * r.Step
		switch {
		case at <= after:
		case total[i].Queue > 0:
			since = -1
		case since < 0:
			since = at
		}
		if since >= 0 && at-since >= calm {
			return since - after
		}
	}
	return -1
}

func TestBurstsAreServed(t *testing.T) {
	scenario, err := FindScenario("bursts")
	must.Succeed(t, err)
	for seed := range uint64(seeds) {
		s := run(t, scenario.Plan(envs()["aggressive"], settings(seed))).Summarize()
		if s.Refused > s.Claims/10 || s.Served+s.Refused+s.Waiting != s.Claims {
			t.Errorf("of %d claims %d were served, %d refused", s.Claims, s.Served, s.Refused)
		}
	}
}

// A pool without demand shrinks to its floor, and stays there.
func TestQuietPoolEndsAtItsFloor(t *testing.T) {
	env := ExampleEnv()
	env.Pools[0].Replicas = 40
	r := run(t, Plan{Env: env, Model: DefaultModel(), Duration: time.Hour})
	report(t, r.Check())
	if last := r.Total("")[len(r.Total(""))-1]; last.Replicas != 2 || last.Idle != 2 {
		t.Errorf("it ends at %+v, want 2 replicas", last)
	}
}

// TestRulesAreSeenToBreak removes each gate from Decide in turn: a check must fail each time.
func TestRulesAreSeenToBreak(t *testing.T) {
	type group = scalepolicy.Group
	members := func(change func(*scalepolicy.Member)) func(*group) {
		return func(g *group) {
			for i := range g.Members {
				change(&g.Members[i])
			}
		}
	}
	cases := []struct {
		rule, env, scenario string
		feed                func(*group)                // what Decide is told instead
		twist               func(*scalepolicy.Decision) // what becomes of its answer
		plan                func(*Plan)
		check               func(*Run) []Violation // Check, if nil
	}{
		{rule: "success cooldown", scenario: "bursts", feed: func(g *group) { g.Policy.ScaleUpPolicy.CooldownSeconds = 0 }},
		{rule: "probe while saturated", scenario: "refusals", feed: func(g *group) { g.Policy.ScaleUpPolicy.SaturationCooldownSeconds = 0 }},
		{rule: "stabilization", scenario: "bursts", feed: func(g *group) { g.Policy.ScaleDownPolicy.StabilizationSeconds = 0 }},
		{rule: "idle timeout", scenario: "daily", feed: func(g *group) { g.Policy.ScaleDownPolicy.IdleTimeoutSeconds = 60 }},
		{rule: "protection window", scenario: "bursts", feed: func(g *group) { g.Policy.ScaleDownPolicy.ProtectionWindowSeconds = 1 }},
		{rule: "group ceiling", env: "siblings", scenario: "ramp", feed: func(g *group) { g.Policy.MaxReplicas = nil }},
		{rule: "group ceiling", env: "aggressive", scenario: "ramp", feed: func(g *group) { *g.Policy.MaxReplicas = 60 }},
		{rule: "member ceiling", env: "siblings", scenario: "ramp", feed: members(func(m *scalepolicy.Member) { m.MaxReplicas = nil })},
		{rule: "group floor", scenario: "bursts", feed: func(g *group) { g.Policy.MinReplicas = nil }},
		{rule: "member floor", env: "siblings", scenario: "bursts", feed: members(func(m *scalepolicy.Member) { m.MinReplicas = nil })},
		{rule: "enabled", scenario: "bursts", feed: func(g *group) { g.Policy.Enabled = true },
			plan: func(p *Plan) { p.Env.Groups[0].Enabled = false }},
		{rule: "running Pods kept", scenario: "daily", twist: func(d *scalepolicy.Decision) {
			for i := range d.Members {
				if m := &d.Members[i]; m.Direction == scalepolicy.Down {
					m.To = 2
				}
			}
		}},
		{
			rule: "growth ends", scenario: "steady", check: func(r *Run) []Violation { return settled(r, 20) },
			feed: func(g *group) {
				for i := range g.Members {
					g.Members[i].Provisioning, g.Members[i].Pods.ReadyIdle = 0, 0
				}
			},
		},
		{
			rule: "no oscillation", scenario: "steady", check: func(r *Run) []Violation { return settled(r, 20) },
			feed: func(g *group) {
				g.Policy.ScaleUpPolicy.IdleThresholdSeconds = 0
				g.Policy.ScaleDownPolicy = v1alpha1.PoolScaleDownPolicy{}
			},
		},
		{rule: "recovery", scenario: "refusals", check: func(r *Run) []Violation { return recovered(r, 5*time.Minute) },
			feed: func(g *group) { g.Policy.ScaleUpPolicy.SaturationCooldownSeconds = math.MaxInt32 }},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			env := envs()["default"]
			if c.env != "" {
				env = envs()[c.env]
			}
			plan := steady(env, 20, 1)
			if c.scenario != "steady" {
				scenario, err := FindScenario(c.scenario)
				must.Succeed(t, err)
				plan = scenario.Plan(env, settings(1))
			}
			if c.plan != nil {
				c.plan(&plan)
			}
			plan.decide = func(g scalepolicy.Group) scalepolicy.Decision {
				if c.feed != nil {
					g.Policy = *g.Policy.DeepCopy()
					c.feed(&g)
				}
				d := scalepolicy.Decide(g)
				if c.twist != nil {
					c.twist(&d)
				}
				return d
			}
			check := (*Run).Check
			if c.check != nil {
				check = c.check
			}
			found := check(run(t, plan))
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == c.rule }) {
				t.Errorf("%q is not missed; found: %v", c.rule, found[:min(3, len(found))])
			}
		})
	}
}

func TestTheSamePlanGivesTheSameRun(t *testing.T) {
	draw := func(seed uint64) string {
		scenario, err := FindScenario("lost-updates")
		must.Succeed(t, err)
		r := run(t, scenario.Plan(envs()["siblings"], settings(seed)))
		var out bytes.Buffer
		for _, write := range []error{r.WriteText(&out), r.WriteSVG(&out), WriteTable(&out, []string{"x"}, []Summary{r.Summarize()})} {
			if write != nil {
				t.Fatal(write)
			}
		}
		return out.String()
	}
	first, again, other := draw(1), draw(1), draw(2)
	if first != again {
		t.Error("two runs of one plan differ")
	}
	if first == other {
		t.Error("the seed changes nothing")
	}
}

// randomEnv has a random policy and random members.
func randomEnv(r *rand.Rand) Env {
	pick := func(of ...int32) int32 { return of[r.IntN(len(of))] }
	e := ExampleEnv()
	g := &e.Groups[0]
	g.ScaleUpPolicy = v1alpha1.PoolScaleUpPolicy{
		Mode: []v1alpha1.PoolScaleUpMode{v1alpha1.PoolScaleUpModeConservative, v1alpha1.PoolScaleUpModeDefault,
			v1alpha1.PoolScaleUpModeAggressive}[r.IntN(3)],
		CooldownSeconds: pick(0, 1, 30, 300), IdleThresholdSeconds: pick(0, 1, 30, 300),
		IdleZeroQuietWindowSeconds: pick(0, 1, 300, 3600), SaturationCooldownSeconds: pick(0, 1, 60, 600),
	}
	g.ScaleDownPolicy = v1alpha1.PoolScaleDownPolicy{
		IdleTimeoutSeconds: pick(0, 1, 60, 300), StabilizationSeconds: pick(0, 1, 60, 600), ProtectionWindowSeconds: pick(0, 1, 10, 120),
	}
	g.MaxReplicas, g.MinReplicas = ptr.To(pick(0, 1, 10, 60)), ptr.To[int32](0)
	*g.MinReplicas = min(pick(0, 1, 5), *g.MaxReplicas)
	e.Pools = nil
	for i := range 1 + r.IntN(4) {
		p := Pool{Cluster: []string{"east", "west"}[r.IntN(2)], Name: fmt.Sprintf("pool-%d", i), Replicas: pick(0, 1, 7)}
		p.Config = v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default", Priority: pick(0, 0, 10)}
		if r.IntN(2) == 0 {
			p.Config.MaxReplicas = ptr.To(pick(0, 3, 20))
		}
		if r.IntN(3) == 0 {
			p.Config.MinReplicas = ptr.To(min(pick(1, 4), ptr.Deref(p.Config.MaxReplicas, 4)))
		}
		if r.IntN(3) == 0 {
			p.Config.ScaleDownPriority = ptr.To(pick(-1, 5, 20))
		}
		e.Pools = append(e.Pools, p)
	}
	return e
}

// For any policy, the rules hold, and a worker comes to rest.
func TestAnyPolicyKeepsTheRules(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		env, scenario := randomEnv(r), scenarios[r.IntN(len(scenarios))]
		set := settings(seed)
		set.Duration, set.Wanted = scenario.Duration/6, 15
		result := run(t, scenario.Plan(env, set))
		report(t, result.Check())
		if most := 12 * int(set.Duration/time.Second); result.Decisions > most {
			t.Errorf("%d decisions in %s", result.Decisions, set.Duration)
		}
		if t.Failed() {
			t.Fatalf("seed %d, %s: %+v", seed, scenario.Name, env)
		}
	}
}
