// SPDX-License-Identifier: Apache-2.0

package main

import (
	"k8s.io/utils/ptr"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/simulate"
)

// policy is a manifest's group apart from its name, minReplicas: 2 and maxReplicas: 50.
type policy struct {
	name   string // as YAML
	change func(*simulate.Env)
}

func group(change func(*v1alpha1.EnvAutoscalingGroup)) func(*simulate.Env) {
	return func(e *simulate.Env) { change(&e.Groups[0]) }
}

var (
	usual = policy{"nothing", func(*simulate.Env) {}}
	floor = policy{"minReplicas: 10", group(func(g *v1alpha1.EnvAutoscalingGroup) { g.MinReplicas = ptr.To[int32](10) })}
	quick = policy{"minReplicas: 10, mode: Aggressive, cooldownSeconds: 10", group(func(g *v1alpha1.EnvAutoscalingGroup) {
		g.MinReplicas = ptr.To[int32](10)
		g.ScaleUpPolicy.Mode, g.ScaleUpPolicy.CooldownSeconds = v1alpha1.PoolScaleUpModeAggressive, 10
	})}
	careful = policy{"mode: Conservative, cooldownSeconds: 10", group(func(g *v1alpha1.EnvAutoscalingGroup) {
		g.ScaleUpPolicy.Mode, g.ScaleUpPolicy.CooldownSeconds = v1alpha1.PoolScaleUpModeConservative, 10
	})}
	reactive = policy{"idleThresholdSeconds: 0", group(func(g *v1alpha1.EnvAutoscalingGroup) { g.ScaleUpPolicy.IdleThresholdSeconds = 0 })}
	thrifty  = policy{"idleTimeoutSeconds: 60", group(func(g *v1alpha1.EnvAutoscalingGroup) { g.ScaleDownPolicy.IdleTimeoutSeconds = 60 })}
	patient  = policy{"idleTimeoutSeconds: 1800", group(func(g *v1alpha1.EnvAutoscalingGroup) { g.ScaleDownPolicy.IdleTimeoutSeconds = 1800 })}
	siblings = policy{"two members", func(e *simulate.Env) {
		e.Pools = []simulate.Pool{
			{Cluster: "east", Name: "reserved", Replicas: 2, Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default",
				MinReplicas: ptr.To[int32](2), MaxReplicas: ptr.To[int32](20)}},
			{Cluster: "east", Name: "on-demand", Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default", Priority: 10}},
		}
	}}
)

// shown are the runs to draw.
var shown = []struct {
	file, scenario string
	policy         policy
}{
	{"bursts.svg", "bursts", usual},
	{"bursts-quick.svg", "bursts", quick},
	{"ramp.svg", "ramp", usual},
	{"daily.svg", "daily", usual},
	{"flapping.svg", "flapping", usual},
	{"flapping-patient.svg", "flapping", patient},
	{"refusals.svg", "refusals", usual},
	{"slow-pods.svg", "slow-pods", usual},
	{"siblings.svg", "ramp", siblings},
}

// compared are the tables, by scenario.
var compared = []struct {
	scenario string
	policies []policy
}{
	{"bursts", []policy{usual, floor, quick}},
	{"daily", []policy{usual, careful, quick, reactive, thrifty, patient}},
}
