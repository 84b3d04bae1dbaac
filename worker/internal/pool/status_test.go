// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
)

func TestPhase(t *testing.T) {
	tests := map[string]struct {
		replicas int32
		deleting bool
		counts   counts
		phase    v1alpha1.SandboxPoolPhase
		reasons  [3]string // Available, Scaling, Degraded
	}{
		"empty": {phase: "Pending", reasons: [3]string{"NoIdlePodsAvailable", "ReplicasReady", "AllPodsHealthy"}},
		"first": {replicas: 2, counts: counts{idle: 1}, phase: "ScalingUp",
			reasons: [3]string{"IdlePodsAvailable", "ScalingUp", "AllPodsHealthy"}},
		"busy":  {replicas: 2, counts: counts{starting: 1, running: 1}, phase: "Ready", reasons: [3]string{"NoIdlePodsAvailable", "ReplicasReady", "AllPodsHealthy"}},
		"reset": {replicas: 2, counts: counts{stopping: 1, idle: 1}, phase: "Ready", reasons: [3]string{"IdlePodsAvailable", "ReplicasReady", "AllPodsHealthy"}},
		"too many": {replicas: 1, counts: counts{running: 2, failed: 1}, phase: "ScalingDown",
			reasons: [3]string{"NoIdlePodsAvailable", "ScalingDown", "FailedPodsPresent"}},
		"unready": {replicas: 2, counts: counts{idle: 2, unavailable: 1}, phase: "Degraded",
			reasons: [3]string{"IdlePodsAvailable", "ReplicasReady", "UnhealthyIdlePods"}},
		"unready, failed": {replicas: 1, counts: counts{idle: 1, unavailable: 1, failed: 1}, phase: "Degraded",
			reasons: [3]string{"NoIdlePodsAvailable", "ReplicasReady", "UnhealthyAndFailedPods"}},
		"failed does not count": {replicas: 1, counts: counts{failed: 1}, phase: "ScalingUp",
			reasons: [3]string{"NoIdlePodsAvailable", "ScalingUp", "FailedPodsPresent"}},
		"going to nothing": {counts: counts{dying: 2}, phase: "ScalingDown", reasons: [3]string{"NoIdlePodsAvailable", "ScalingDown", "AllPodsHealthy"}},
		"replacing":        {replicas: 1, counts: counts{idle: 1, dying: 1}, phase: "Ready", reasons: [3]string{"IdlePodsAvailable", "ReplicasReady", "AllPodsHealthy"}},
		"deleted": {replicas: 2, deleting: true, counts: counts{running: 1}, phase: "Terminating",
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
			summarize(pool, tt.counts, 0, clk)
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
			summarize(again, tt.counts, 0, clk)
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

// The length of a queue is written once in three seconds, and then as it is.
func TestPendingRequestsAreWrittenEveryThreeSeconds(t *testing.T) {
	clk := testclock.NewFakeClock(time.Unix(1_000_000, 0))
	key := types.NamespacedName{Namespace: "default", Name: "p"}
	r := &Reconciler{pendings: newThrottle(clk, pendingInterval)}
	written, writes := int32(0), 0
	for i, step := range []struct {
		after   time.Duration
		waiting int32
		want    int32
		later   time.Duration
	}{
		{0, 0, 0, 0},
		{0, 3, 3, 0},
		{time.Second, 9, 3, 2 * time.Second},
		{time.Second, 0, 3, time.Second},
		{time.Second, 100, 100, 0},
		{time.Second, 110, 100, 0}, // less than a fifth: nothing to come back for
		{time.Second, 120, 100, time.Second},
		{0, 100, 100, 0},
		{time.Hour, 100, 100, 0},
		{0, 0, 0, 0},
	} {
		clk.Step(step.after)
		got, later := r.mirror(key, written, step.waiting)
		if got != step.want || later != step.later {
			t.Errorf("step %d: %d, come back in %s, want %d, %s", i, got, later, step.want, step.later)
		}
		if got != written {
			written, writes = got, writes+1
			r.pendings.wrote(key)
		}
	}
	if writes != 3 {
		t.Errorf("%d writes", writes)
	}
}

func TestPendingMoved(t *testing.T) {
	for _, tt := range []struct {
		before, now int32
		moved       bool
	}{{0, 0, false}, {0, 1, true}, {1, 0, true}, {100, 100, false}, {100, 119, false}, {100, 120, true}, {100, 80, true}, {100, 81, false}, {3, 4, true}} {
		if got := pendingMoved(tt.before, tt.now); got != tt.moved {
			t.Errorf("%d → %d: %v", tt.before, tt.now, got)
		}
	}
}
