// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/pool/status"
)

// Pods that have just been created are unavailable and not stuck: a busy pool always has some.
func TestStuckPodsAreCountedApart(t *testing.T) {
	m, err := newMetrics(prometheus.NewRegistry())
	must.Succeed(t, err)
	key := types.NamespacedName{Namespace: "default", Name: "p"}
	pods := []*corev1.Pod{
		idlePodOf("fine", readyNow), idlePodOf("new", waitsFor("ContainerCreating")), idlePodOf("late", waitsFor("ContainerCreating")),
		idlePodOf("homeless", unscheduled), idlePodOf("refused", waitsFor("ErrImagePull")),
	}
	ages := map[types.UID]time.Duration{
		"new": time.Second, "late": status.StuckAfter, "homeless": status.StuckAfter, "refused": time.Second,
	}
	for _, step := range []struct {
		pods []*corev1.Pod
		want map[string]float64
	}{
		{pods, map[string]float64{"idle": 5, "unavailable": 4, "stuck": 3}},
		{pods[:2], map[string]float64{"idle": 2, "unavailable": 1, "stuck": 0}},
	} {
		counts := status.Count(step.pods, ages)
		m.observe(key, &counts, 0)
		for phase, want := range step.want {
			if got := testutil.ToFloat64(m.pods.WithLabelValues(key.Namespace, key.Name, phase)); got != want {
				t.Errorf("%d pods: %v are %s, want %v", len(step.pods), got, phase, want)
			}
		}
	}
}

// The length of a queue is written once in three seconds, with its current value.
func TestPendingRequestsAreWrittenEveryThreeSeconds(t *testing.T) {
	clk := testclock.NewFakeClock(time.Unix(1_000_000, 0))
	key := types.NamespacedName{Namespace: "default", Name: "p"}
	r := &Reconciler{memory: newMemory(clk)}
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
		{time.Second, 110, 100, 0}, // less than a fifth: no reason to come back
		{time.Second, 120, 100, time.Second},
		{0, 100, 100, 0},
		{time.Hour, 100, 100, 0},
		{0, 0, 0, 0},
	} {
		clk.Step(step.after)
		got, later := r.pendingToWrite(key, written, step.waiting)
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
	}{{0, 0, false}, {0, 1, true}, {1, 0, true}, {100, 100, false}, {100, 119, false}, {100, 120, true}, {100, 80, true}, {100, 81, false},
		{3, 4, true}} {
		if got := pendingMoved(tt.before, tt.now); got != tt.moved {
			t.Errorf("%d → %d: %v", tt.before, tt.now, got)
		}
	}
}
