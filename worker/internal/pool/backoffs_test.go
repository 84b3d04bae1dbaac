// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
)

func heldBy(node, period string) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main"}}}}
	pod.Labels = map[string]string{v1alpha1.SandboxPhaseLabelKey: v1alpha1.SandboxPhaseStopping}
	cs := corev1.ContainerStatus{Name: "main"}
	if period != "" {
		cs.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: "back-off " + period + " restarting failed container"}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{cs}
	return pod
}

func TestBackoffs(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	b := newBackoffs(clk)
	want := func(what string, got, want map[string]time.Duration) {
		t.Helper()
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	want("nothing", b.observe([]*corev1.Pod{heldBy("a", "")}), nil)
	crashing := heldBy("a", "5m0s")
	crashing.Labels[v1alpha1.SandboxPhaseLabelKey] = v1alpha1.SandboxPhaseIdle
	want("an idle Pod that crashes", b.observe([]*corev1.Pod{crashing}), nil)
	want("first", b.observe([]*corev1.Pod{heldBy("a", "20s"), heldBy("b", "1s"), heldBy("c", "")}),
		map[string]time.Duration{"a": 20 * time.Second, "b": time.Second})
	clk.SetTime(clk.Now().Add(40 * time.Minute))
	want("the longest stays", b.observe([]*corev1.Pod{heldBy("a", "10s")}),
		map[string]time.Duration{"a": 20 * time.Second, "b": time.Second})
	clk.SetTime(clk.Now().Add(40 * time.Minute))
	want("what was long ago does not", b.observe(nil), map[string]time.Duration{"a": 20 * time.Second})
	clk.SetTime(clk.Now().Add(2 * time.Hour))
	want("in the end", b.observe(nil), nil)
}

func TestNewPodTime(t *testing.T) {
	begin := time.Unix(1000, 0)
	took := func(d time.Duration, restarts int32) *corev1.Pod {
		pod := heldBy("a", "")
		pod.Status.StartTime = &metav1.Time{Time: begin}
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(begin.Add(d)),
		}}
		pod.Status.ContainerStatuses[0].RestartCount = restarts
		return pod
	}
	unready := took(time.Hour, 0)
	unready.Status.Conditions[0].Status = corev1.ConditionFalse
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want time.Duration
	}{
		"none":     {nil, newPodUnknown},
		"no use":   {[]*corev1.Pod{took(time.Hour, 1), unready, heldBy("a", "")}, newPodUnknown},
		"median":   {[]*corev1.Pod{took(90*time.Second, 0), took(time.Second, 0), took(7*time.Second, 0)}, 7 * time.Second},
		"at once":  {[]*corev1.Pod{took(0, 0)}, newPodMin},
		"backward": {[]*corev1.Pod{took(-time.Hour, 0)}, newPodMin},
		"for ever": {[]*corev1.Pod{took(time.Hour, 0)}, newPodMax},
	} {
		if got := newPodTime(tc.pods); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
