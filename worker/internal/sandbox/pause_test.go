// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/pause"
)

// has gives the first container CPU, as its spec says and as the kubelet reports.
func has(spec, status string) func(*corev1.Pod) {
	limits := func(cpu string) corev1.ResourceRequirements {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		return corev1.ResourceRequirements{Requests: list, Limits: list}
	}
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = limits(spec)
		r := limits(status)
		pod.Status.ContainerStatuses[0].Resources = &r
	}
}

func marked(target pause.Target) func(*corev1.Pod) {
	one := resource.MustParse("1")
	value, err := (&pause.Intent{Target: target, Since: "2026-03-01T11:30:00Z",
		Containers: map[string]pause.CPU{"main": {Request: &one, Limit: &one}}}).Encode()
	if err != nil {
		panic(err)
	}
	return annotated(v1alpha1.SandboxPauseAnnotationKey, value)
}

func TestPausePatches(t *testing.T) {
	fresh := idlePod(holds(Running), has("1", "1"), annotated(v1alpha1.SandboxFirstActivityTimeoutAnnotationKey, "300"))
	d := pause.Decide(fresh, pause.Paused, noon)
	patch, err := PausePatch(fresh, d.Intent, noon)
	must.Succeed(t, err)
	golden(t, "pause-intent", patch)

	paused := idlePod(holds(Running), has("1", "1"), marked(pause.Paused))
	golden(t, "pause-resize", ResizePatch(paused, pause.Decide(paused, pause.Paused, noon).Changes))

	patch, err = PausePatch(paused, pause.Decide(paused, pause.Running, noon).Intent, noon)
	must.Succeed(t, err)
	golden(t, "resume-intent", patch)
	patch, err = PausePatch(paused, nil, noon)
	must.Succeed(t, err)
	golden(t, "resume-clear", patch)
}

func TestRecordTellsOfAPause(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want sandboxv1.Pause_State
	}{
		"paused":   {idlePod(holds(Running), has("10m", "10m"), marked(pause.Paused)), sandboxv1.Pause_PAUSED},
		"pausing":  {idlePod(holds(Running), has("10m", "1"), marked(pause.Paused)), sandboxv1.Pause_PAUSING},
		"resuming": {idlePod(holds(Running), has("1", "10m"), marked(pause.Running)), sandboxv1.Pause_RESUMING},
		"to clear": {idlePod(holds(Running), has("1", "1"), marked(pause.Running)), sandboxv1.Pause_RESUMING},
		"running":  {idlePod(holds(Running), has("1", "1")), 0},
		"stopping": {idlePod(holds(Stopping), has("10m", "10m"), marked(pause.Paused)), 0},
	} {
		got := Record(tt.pod, nil, "east").GetPause()
		if got.GetState() != tt.want || (got == nil) != (tt.want == 0) || got != nil && got.GetSince() == nil {
			t.Errorf("%s: %v, want %s", name, got, tt.want)
		}
		if end := TerminalRecord(tt.pod, nil, "east", noon, nil); end.GetPause() != nil {
			t.Errorf("%s: the record of its end says %v", name, end.GetPause())
		}
	}
}

// I13: a Pod that was paused, or has yet to get its CPU back, does not return to idle.
func TestI13APausedPodIsNotRecyclable(t *testing.T) {
	for _, target := range []pause.Target{pause.Paused, pause.Running} {
		pod := idlePod(holds(Running), runs(tenantImage, "containerd://c2"), has("1", "1"))
		if got := Recyclable(pod, poolSpec()); !got.Reset {
			t.Fatalf("without a pause: %s", got.Reason)
		}
		marked(target)(pod)
		if got := Recyclable(pod, poolSpec()); got.Reset || got.Reason != ReplacePaused {
			t.Errorf("%s: %v", target, got)
		}
	}
}

func TestReady(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   Readiness
	}{
		"ready":         {func(*corev1.Pod) {}, ReadyNow},
		"starting":      {annotated(v1alpha1.SandboxStartedAtAnnotationKey, ""), NotRunning},
		"being deleted": {func(p *corev1.Pod) { p.DeletionTimestamp = metaTime(noon) }, NotRunning},
		"seen":          {func(p *corev1.Pod) { p.Status.ObservedGeneration = p.Generation }, ReadyNow},
		"not seen":      {func(p *corev1.Pod) { p.Status.ObservedGeneration = p.Generation - 1 }, NotObserved},
		"not ready":     {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }, ContainerUnready},
		"ended":         {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Running = nil }, ContainerUnready},
		"no status":     {func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, ContainerUnready},
		"no address":    {func(p *corev1.Pod) { p.Status.PodIP = "" }, NoAddress},
		"resizing": {func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue})
		}, BeingResized},
	} {
		if got := Ready(idlePod(holds(Running), tt.change)); got != tt.want || got.OK() != (tt.want == ReadyNow) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
