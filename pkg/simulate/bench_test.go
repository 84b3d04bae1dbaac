// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"testing"
	"time"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/scalepolicy"
)

// busyGroup has members of twenty Pods each: some run, some have been idle for long, some are marked; the last one has a queue.
func busyGroup(members int) scalepolicy.Group {
	policy := DefaultGroup("default")
	policy.Enabled = true
	g := scalepolicy.Group{ClusterID: "east", Policy: policy, Now: epoch}
	for i := range members {
		m := scalepolicy.Member{
			Name: fmt.Sprintf("member-%02d", i), Replicas: 20, ScaleUpPriority: int32(i), ScaleDownPriority: int32(i / 2),
			Pods: scalepolicy.Counts{Running: 12, Idle: 8, ReadyIdle: 8}, LastCreate: epoch.Add(-time.Second),
			Status: &v1alpha1.PoolAutoScalingStatus{},
		}
		for j := range 8 {
			m.IdlePods = append(m.IdlePods, scalepolicy.IdlePod{Name: fmt.Sprintf("%s-%d", m.Name, j), IdleFor: time.Duration(100*j) * time.Second,
				Marked: j == 7})
		}
		if i == members-1 {
			m.Queue, m.Pods.Running, m.Pods.Idle, m.Pods.ReadyIdle, m.IdlePods = 30, 20, 0, 0, nil
		}
		g.Members = append(g.Members, m)
	}
	return g
}

// BenchmarkDecide decides one Env of 32 members: in 8 groups, and in one.
func BenchmarkDecide(b *testing.B) {
	for _, groups := range []int{8, 1} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			g := busyGroup(32 / groups)
			b.ReportAllocs()
			for b.Loop() {
				for range groups {
					scalepolicy.Decide(g)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/Env")
		})
	}
}

// BenchmarkDay simulates a working day.
func BenchmarkDay(b *testing.B) {
	scenario, err := FindScenario("daily")
	must.Succeed(b, err)
	plan := scenario.Plan(ExampleEnv(), Settings{Runs: Typical(5 * time.Minute), Seed: 1})
	for b.Loop() {
		_, err = Simulate(b.Context(), plan)
		must.Succeed(b, err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "days/s")
}
