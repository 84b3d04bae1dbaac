// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
)

func TestPhase(t *testing.T) {
	tests := map[string]struct {
		replicas int32
		deleting bool
		counts   Counts
		phase    v1alpha1.SandboxPoolPhase
		reasons  [3]string // Available, Scaling, Degraded
	}{
		"empty": {phase: "Pending", reasons: [3]string{"NoIdlePodsAvailable", "ReplicasReady", "AllPodsHealthy"}},
		"first": {replicas: 2, counts: Counts{Idle: 1}, phase: "ScalingUp",
			reasons: [3]string{"IdlePodsAvailable", "ScalingUp", "AllPodsHealthy"}},
		"busy": {replicas: 2, counts: Counts{Starting: 1, Running: 1}, phase: "Ready",
			reasons: [3]string{"NoIdlePodsAvailable", "ReplicasReady", "AllPodsHealthy"}},
		"reset": {replicas: 2, counts: Counts{Stopping: 1, Idle: 1}, phase: "Ready",
			reasons: [3]string{"IdlePodsAvailable", "ReplicasReady", "AllPodsHealthy"}},
		"too many": {replicas: 1, counts: Counts{Running: 2, Failed: 1}, phase: "ScalingDown",
			reasons: [3]string{"NoIdlePodsAvailable", "ScalingDown", "FailedPodsPresent"}},
		"unready": {replicas: 2, counts: Counts{Idle: 2, Unavailable: 1}, phase: "Degraded",
			reasons: [3]string{"IdlePodsAvailable", "ReplicasReady", "UnhealthyIdlePods"}},
		"unready, failed": {replicas: 1, counts: Counts{Idle: 1, Unavailable: 1, Failed: 1}, phase: "Degraded",
			reasons: [3]string{"NoIdlePodsAvailable", "ReplicasReady", "UnhealthyAndFailedPods"}},
		"failed does not count": {replicas: 1, counts: Counts{Failed: 1}, phase: "ScalingUp",
			reasons: [3]string{"NoIdlePodsAvailable", "ScalingUp", "FailedPodsPresent"}},
		"going to nothing": {counts: Counts{Dying: 2}, phase: "ScalingDown",
			reasons: [3]string{"NoIdlePodsAvailable", "ScalingDown", "AllPodsHealthy"}},
		"replacing": {replicas: 1, counts: Counts{Idle: 1, Dying: 1}, phase: "Ready",
			reasons: [3]string{"IdlePodsAvailable", "ReplicasReady", "AllPodsHealthy"}},
		"deleted": {replicas: 2, deleting: true, counts: Counts{Running: 1}, phase: "Terminating",
			reasons: [3]string{"NoIdlePodsAvailable", "ScalingDown", "AllPodsHealthy"}},
	}
	clk := testclock.NewFakePassiveClock(time.Unix(1000, 0))
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			pool.Spec.Replicas = tt.replicas
			if tt.deleting {
				pool.DeletionTimestamp = &metav1.Time{}
			}
			tt.counts.Write(pool, nil, clk)
			if pool.Status.Phase != tt.phase {
				t.Errorf("phase %s, want %s", pool.Status.Phase, tt.phase)
			}
			for i, c := range pool.Status.Conditions {
				if c.Reason != tt.reasons[i] {
					t.Errorf("%s is %s, want %s", c.Type, c.Reason, tt.reasons[i])
				}
			}
			again := pool.DeepCopy()
			clk.SetTime(clk.Now().Add(time.Hour))
			tt.counts.Write(again, nil, clk)
			if !equality.Semantic.DeepEqual(pool, again) {
				t.Error("the same counts an hour later change the status")
			}
		})
	}
}

func TestSelectors(t *testing.T) {
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	selectors(pool)
	all := "agentbox.navix.sh/managed-by=sandbox-api-server,agentbox.navix.sh/sandbox-pool=p"
	if pool.Status.Selector != all || pool.Status.PhaseSelectors["all"] != all {
		t.Errorf("selector is %q", pool.Status.Selector)
	}
	want := "agentbox.navix.sh/managed-by=sandbox-api-server,agentbox.navix.sh/sandbox-phase=running,agentbox.navix.sh/sandbox-pool=p"
	if got := pool.Status.PhaseSelectors["running"]; got != want {
		t.Errorf("running is %q, want %q", got, want)
	}
	if len(pool.Status.PhaseSelectors) != 6 {
		t.Errorf("phase selectors: %v", pool.Status.PhaseSelectors)
	}
}

func TestWhatOthersFind(t *testing.T) {
	pool := &v1alpha1.SandboxPool{}
	pool.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxPoolConditionAvailable}}
	(&Counts{}).Write(pool, []patch.Condition{
		patch.False(v1alpha1.SandboxPoolConditionTemplateConsistent, v1alpha1.ReasonTemplateNotFound, "gone"),
		patch.True(v1alpha1.SandboxPoolConditionNetworkPolicyApplied, v1alpha1.ReasonNetworkPolicyApplied, "Pods may connect to: nothing"),
	}, clock.RealClock{})
	if len(pool.Status.Conditions) != 5 {
		t.Errorf("got %+v", pool.Status.Conditions)
	}
	(&Counts{}).Write(pool, nil, clock.RealClock{})
	if len(pool.Status.Conditions) != 3 || pool.Status.Conditions[0].Type != v1alpha1.SandboxPoolConditionAvailable {
		t.Errorf("what no part reports any more is still there: %+v", pool.Status.Conditions)
	}
}
