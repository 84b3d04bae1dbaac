// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/scalepolicy"
)

// I11: what a leader wrote while the API server's clock was an hour fast delays its successor by one cooldown, not by an hour.
func TestTimesInTheFutureRunDown(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	clocks := newMachine(start)
	local, s := clocks.local, clocks.steady()
	now := s.now
	hour := func() *metav1.Time { return &metav1.Time{Time: start.Add(time.Hour)} }
	pool := &v1alpha1.SandboxPool{}
	pool.Annotations = map[string]string{v1alpha1.LastSandboxCreateTimeAnnotationKey: hour().Format(time.RFC3339)}
	pool.Status.AutoScaling = &v1alpha1.PoolAutoScalingStatus{
		LastScaleUpTime: hour(), LastScaleDownTime: hour(), LastScaleUpAttemptTime: hour(), IdleZeroSince: hour(),
		LastScaleUpAttemptResult: v1alpha1.PoolScaleUpAttemptInsufficient,
	}
	written, key := pool.DeepCopy(), types.NamespacedName{Name: "a"}
	policy := v1alpha1.EnvAutoscalingGroup{
		Enabled: true,
		ScaleUpPolicy: v1alpha1.PoolScaleUpPolicy{
			CooldownSeconds: 30, IdleThresholdSeconds: 20, IdleZeroQuietWindowSeconds: 300, SaturationCooldownSeconds: 60,
		},
		ScaleDownPolicy: v1alpha1.PoolScaleDownPolicy{StabilizationSeconds: 90},
	}
	m := newMemory()
	look := func(change func(*scalepolicy.Member)) scalepolicy.MemberDecision {
		known := m.of(key, key, pool, s)
		member := scalepolicy.Member{Name: "a", Replicas: 1, Status: known.status, LastCreate: known.created}
		change(&member)
		d := scalepolicy.Decide(scalepolicy.Group{Policy: policy, Members: []scalepolicy.Member{member}, Now: now()})
		known.status = d.Members[0].Status
		return d.Members[0]
	}
	busy := func(m *scalepolicy.Member) { m.Pods.Running = 1 }
	waits := func(m *scalepolicy.Member) { m.Pods.Running, m.Queue = 1, 1 }
	idle := func(m *scalepolicy.Member) {
		m.Pods = scalepolicy.Counts{Idle: 1, ReadyIdle: 1}
		m.IdlePods = []scalepolicy.IdlePod{{Name: "one", IdleFor: time.Hour}}
	}
	for _, step := range []struct {
		at   time.Duration
		see  func(*scalepolicy.Member)
		want scalepolicy.Reason
	}{
		{0, busy, scalepolicy.ReasonIdleThreshold},
		{19 * time.Second, busy, scalepolicy.ReasonIdleThreshold},
		{20 * time.Second, busy, scalepolicy.ReasonSuccessCooldown},
		{29 * time.Second, waits, scalepolicy.ReasonSuccessCooldown},
		{30 * time.Second, waits, scalepolicy.ReasonSaturated},
		{59 * time.Second, waits, scalepolicy.ReasonSaturated},
		{60 * time.Second, waits, scalepolicy.ReasonUnmetDemand},
		{299 * time.Second, busy, scalepolicy.ReasonIdleZero},
		{301 * time.Second, busy, scalepolicy.ReasonQuietWindow},
		{302 * time.Second, idle, scalepolicy.ReasonIdleTimeout},
	} {
		local.SetTime(time.Unix(1_000_000, 0).Add(step.at))
		if d := look(step.see); d.Reason != step.want {
			t.Errorf("after %s: %s: %s, want %s", step.at, d.Reason, d.Text, step.want)
		}
	}
	known := m.of(key, key, pool, s)
	if soon, _ := urgent(known.written(s), written.Status.AutoScaling); !soon || !pool.Status.AutoScaling.LastScaleUpTime.Equal(hour()) {
		t.Error("what the pool has is to be put right by a write, and the cache's own is not to be changed")
	}
	var later time.Duration
	if r := (&Reconciler{clock: local}); !r.dueFlush(&target{memo: known}, &later) {
		t.Error("the annotation is to be put right")
	}
	if !known.created.Equal(start) {
		t.Errorf("a sandbox was asked for at %s, want %s", known.created, start)
	}
}
