// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
)

// Scenario is a course of a day.
type Scenario struct {
	Name string
	// About describes it in a sentence.
	About string
	// Duration is the default duration.
	Duration time.Duration
	// disturb and load fill in a plan. wanted is the number of concurrently wanted sandboxes at peak demand.
	load    func(l *Load, end time.Duration, wanted float64)
	disturb func(p *Plan, wanted float64)
}

// Settings scale a scenario.
type Settings struct {
	// Wanted is the number of concurrently wanted sandboxes at peak demand. 0 means 80 % of the Env's ceiling or, without a ceiling, twice its
	// replicas.
	Wanted float64
	// Runs is how long a sandbox is used.
	Runs Spread
	// Duration is the simulated time; 0 means the scenario's default.
	Duration time.Duration
	Seed     uint64
}

// Typical is a spread around a typical time.
func Typical(d time.Duration) Spread { return Spread{d / 2, d, 2 * d} }

// Scenarios returns all scenarios, in the order of display.
func Scenarios() []Scenario { return slices.Clone(scenarios) }

// FindScenario returns a scenario by its name.
func FindScenario(name string) (Scenario, error) {
	var names []string
	for _, s := range scenarios {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Scenario{}, problem.InvalidField("scenario", name, "one of "+strings.Join(names, ", "))
}

// Plan scales the scenario to an Env.
func (s Scenario) Plan(env Env, settings Settings) Plan {
	p := Plan{Name: s.Name, Env: env, Model: DefaultModel(), Duration: settings.Duration, Seed: settings.Seed}
	if p.Duration <= 0 {
		p.Duration = s.Duration
	}
	wanted := settings.Wanted
	if wanted <= 0 {
		wanted = env.Usual()
	}
	load := NewLoad(settings.Seed, settings.Runs)
	s.load(load, p.Duration, wanted)
	p.Claims = load.Claims()
	if s.disturb != nil {
		s.disturb(&p, wanted)
	}
	return p
}

// Usual returns a demand that suits the Env's size.
func (e Env) Usual() float64 {
	var most, has int64
	for i := range e.Groups {
		if limit := e.Groups[i].MaxReplicas; limit != nil {
			most += int64(*limit)
		}
	}
	for i := range e.Pools {
		has += int64(e.Pools[i].Replicas)
	}
	if most > 0 {
		return min(max(1, 0.8*float64(most)), MaxWanted)
	}
	return min(max(10, 2*float64(has)), MaxWanted)
}

var scenarios = []Scenario{
	{
		Name: "constant", About: "the same demand all the time", Duration: 6 * time.Hour,
		load: func(l *Load, end time.Duration, wanted float64) { l.Random(0, end, 0.6*wanted) },
	},
	{
		Name: "bursts", About: "nothing, and then much at once, every half hour", Duration: 3 * time.Hour,
		load: func(l *Load, end time.Duration, wanted float64) {
			for at := 10 * time.Minute; at < end; at += 30 * time.Minute {
				l.Burst(at, int(0.8*wanted), 30*time.Second)
			}
		},
	},
	{
		Name: "ramp", About: "demand that grows evenly, stays, and falls evenly", Duration: 6 * time.Hour,
		load: func(l *Load, end time.Duration, wanted float64) {
			l.Ramp(0, end/3, 0, wanted).Random(end/3, end/2, wanted).Ramp(end/2, 5*end/6, wanted, 0)
		},
	},
	{
		Name: "daily", About: "people at work: little at night, most in the afternoon", Duration: 24 * time.Hour,
		load: func(l *Load, end time.Duration, wanted float64) { l.Day(0, end, 0.05*wanted, wanted) },
	},
	{
		Name: "flapping", About: "demand that doubles and halves every ten minutes", Duration: 4 * time.Hour,
		load: func(l *Load, end time.Duration, wanted float64) {
			l.Flapping(0, end, 20*time.Minute, 0.4*wanted, 0.8*wanted)
		},
	},
	{
		Name: "refusals", About: "a team's quota that is used up, admission that fails, a namespace's quota that refuses Pods",
		Duration: 6 * time.Hour,
		load: func(l *Load, end time.Duration, wanted float64) {
			l.Ramp(0, end/8, 0, 0.8*wanted).Random(end/8, end, 0.8*wanted)
		},
		disturb: func(p *Plan, wanted float64) {
			limit := int32(0.5 * wanted)
			p.Disturbances = append(p.Disturbances,
				Disturbance{Kind: TeamQuota, From: p.Duration / 12, To: 4 * p.Duration / 12, Limit: limit},
				Disturbance{Kind: NodeLost, From: 5 * p.Duration / 12, Factor: 0.5},
				Disturbance{Kind: NamespaceQuota, From: 5 * p.Duration / 12, To: 7 * p.Duration / 12, Limit: limit},
				Disturbance{Kind: AdmissionFails, From: 8 * p.Duration / 12, To: 9 * p.Duration / 12},
			)
		},
	},
	{
		Name: "slow-pods", About: "a ramp while Pods take ten times as long to start", Duration: 4 * time.Hour,
		load: func(l *Load, end time.Duration, wanted float64) {
			l.Random(0, end/4, 0.3*wanted).Ramp(end/4, end/2, 0.3*wanted, 0.8*wanted).Random(end/2, end, 0.8*wanted)
		},
		disturb: func(p *Plan, _ float64) {
			p.Disturbances = append(p.Disturbances, Disturbance{Kind: SlowPods, From: p.Duration / 4, To: 3 * p.Duration / 4, Factor: 10})
		},
	},
	{
		Name: "lost-updates", About: "caches that are slow, then miss half of what happens; a worker that is away", Duration: 4 * time.Hour,
		load: func(l *Load, end time.Duration, wanted float64) {
			l.Flapping(0, end, time.Hour, 0.3*wanted, 0.7*wanted)
		},
		disturb: func(p *Plan, _ float64) {
			p.Disturbances = append(p.Disturbances,
				Disturbance{Kind: SlowCache, From: p.Duration / 8, To: 2 * p.Duration / 8, Factor: 50},
				Disturbance{Kind: LostUpdates, From: 3 * p.Duration / 8, To: 4 * p.Duration / 8, Factor: 0.5},
				Disturbance{Kind: WorkerAway, From: 5 * p.Duration / 8, To: 5*p.Duration/8 + 10*time.Minute},
			)
		},
	},
	{
		Name: "manual-edits", About: "replicas set by hand: once, which is undone, then again and again, which is let stand",
		Duration: 4 * time.Hour,
		load:     func(l *Load, end time.Duration, wanted float64) { l.Random(0, end, 0.5*wanted) },
		disturb: func(p *Plan, wanted float64) {
			first := p.Env.Pools[0].Name
			p.Disturbances = append(p.Disturbances,
				Disturbance{Kind: ManualEdit, From: p.Duration / 4, Pool: first, Replicas: 1},
				Disturbance{Kind: ManualEdit, From: p.Duration / 2, To: p.Duration/2 + 5*time.Minute, Every: time.Minute, Pool: first,
					Replicas: int32(wanted)},
			)
		},
	},
}

// String describes a disturbance.
func (d *Disturbance) String() string {
	where := ""
	if d.Cluster != "" {
		where = " in " + d.Cluster
	}
	switch d.Kind {
	case SlowPods:
		return fmt.Sprintf("Pods take %g times as long%s", d.Factor, where)
	case SlowCache:
		return fmt.Sprintf("caches take %g times as long%s", d.Factor, where)
	case LostUpdates:
		return fmt.Sprintf("caches miss %.0f %% of what happens%s", 100*d.Factor, where)
	case TeamQuota:
		return fmt.Sprintf("the team's quota is %d Pods%s", d.Limit, where)
	case NamespaceQuota:
		return fmt.Sprintf("the namespace's quota is %d Pods%s", d.Limit, where)
	case AdmissionFails:
		return "admission does not respond" + where
	case WorkerAway:
		return "the worker is away" + where
	case NodeLost:
		return fmt.Sprintf("%.0f %% of the Pods are lost%s", 100*d.Factor, where)
	case ManualEdit:
		return fmt.Sprintf("a user sets replicas to %d", d.Replicas)
	}
	return string(d.Kind)
}

// ExampleEnv is an Env of one pool, for scenarios without a manifest.
func ExampleEnv() Env {
	group := DefaultGroup("default")
	group.Enabled, group.MinReplicas, group.MaxReplicas = true, ptr.To[int32](2), ptr.To[int32](50)
	return Env{
		Name:   "example",
		Groups: []v1alpha1.EnvAutoscalingGroup{group},
		Pools:  []Pool{{Cluster: "east", Name: "example-east", Replicas: 2, Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default"}}},
	}
}
