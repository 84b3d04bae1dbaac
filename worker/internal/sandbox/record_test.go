// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
)

func TestRecord(t *testing.T) {
	if got := Record(idlePod(), nil, "east"); got != nil {
		t.Errorf("an idle Pod has the record %v", got)
	}
	port, udp := int32(8080), corev1.ProtocolUDP
	runtimes := []v1alpha1.SandboxRuntimeSpec{{Name: "e2b", Port: &port}, {Name: "dns", Port: &port, Protocol: &udp}, {Name: "none"}}
	want := &sandboxv1.Sandbox{
		Id: "01hx-east", ClusterId: "east", Namespace: "default", Env: "demo", Pool: "small",
		Pod: "small-abc", PodUid: "uid-1", PodIp: "10.0.0.7", Phase: sandboxv1.Phase_RUNNING, Image: tenantImage,
		Team: "red", Labels: map[string]string{"tier": "gold"}, Metadata: map[string]string{"a": "b"}, ClaimKey: "job-1",
		ClaimedAt: timestamppb.New(noon.Add(-time.Hour)), StartedAt: timestamppb.New(noon.Add(-time.Hour)),
		StartupTimeout: durationpb.New(2 * time.Minute),
		Images:         map[string]string{"main": tenantImage}, ContainerId: "containerd://c2", Node: "node-1", Cpu: "600m", Memory: "64Mi",
		Runtimes: []*sandboxv1.Runtime{
			{Name: "e2b", Port: 8080, Url: "tcp://10.0.0.7:8080"}, {Name: "dns", Port: 8080, Url: "udp://10.0.0.7:8080"}, {Name: "none"},
		},
	}
	sized := func(p *corev1.Pod) {
		for i, r := range []string{"500m", "100m"} {
			if i > 0 {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "side"})
			}
			p.Spec.Containers[i].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(r)}
		}
		p.Spec.Containers[1].Resources.Limits = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}
		p.Annotations[v1alpha1.SandboxRunningImagesAnnotationKey] = `{"main":"` + tenantImage + `"}`
	}
	got := Record(idlePod(holds(Running), runs(tenantImage, "containerd://c2"), sized), runtimes, "east")
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}

	want.Phase, want.StopReason, want.TerminatedAt = sandboxv1.Phase_ENDED, "Released", timestamppb.New(noon.Add(-30*time.Minute))
	want.Cpu, want.Memory, want.StartedAt = "", "", nil
	got = TerminalRecord(stopped(), runtimes, "east", noon, nil)
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
}

func TestTerminalRecordOfAPodThatWasLost(t *testing.T) {
	for phase, want := range map[Phase]string{Running: "Failed", Starting: "Canceled"} {
		got := TerminalRecord(idlePod(holds(phase)), nil, "east", noon, nil)
		if got.GetStopReason() != want || got.GetFailureReason() != "PodDeleted" || !got.GetTerminatedAt().AsTime().Equal(noon) {
			t.Errorf("%s: %v, want %s", phase, got, want)
		}
	}
	dead := func(change ...func(*corev1.Pod)) *corev1.Pod {
		return idlePod(append([]func(*corev1.Pod){holds(Running), func(p *corev1.Pod) {
			grace := int64(30)
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = metaTime(noon.Add(30*time.Second)), &grace
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{FinishedAt: *metaTime(noon.Add(time.Second))},
			}
		}}, change...)...)
	}
	condition := func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "evicting",
		})
	}
	starting := Record(idlePod(holds(Starting), annotated(v1alpha1.SwapFromContainerIDAnnotationKey, "containerd://c1")), nil, "east")
	if starting.GetContainerId() != "" {
		t.Errorf("before its swap a sandbox has the container %s of another tenant", starting.GetContainerId())
	}
	for name, tc := range map[string]struct {
		pod          *corev1.Pod
		stop, reason string
	}{
		"deleted, and heeds the signal": {dead(), "Failed", "PodDeleted"},
		"evicted":                       {dead(condition), "Failed", "EvictionByEvictionAPI"},
		"evicted, its container runs":   {idlePod(holds(Running), condition), "Failed", "EvictionByEvictionAPI"},
		"evicted before it ran":         {idlePod(holds(Starting), condition), "Canceled", "EvictionByEvictionAPI"},
		"evicted by the kubelet": {dead(func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }), "Failed",
			"Evicted"},
		"evicted, by another clock": {dead(condition, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = *metaTime(noon.Add(-time.Hour))
		}), "Failed", "EvictionByEvictionAPI"},
		"deleted, and the kubelet has let go": {dead(func(p *corev1.Pod) {
			grace := int64(0)
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = metaTime(noon.Add(2*time.Second)), &grace
		}), "Failed", "PodDeleted"},
		"evicted by the kubelet, which does not say so": {dead(func(p *corev1.Pod) { p.DeletionTimestamp = nil }), "Failed", "EndedByNode"},
		"completed before it is deleted": {dead(func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = *metaTime(noon.Add(-time.Second))
		}), "Completed", ""},
	} {
		if got := TerminalRecord(tc.pod, nil, "east", noon, nil); got.GetStopReason() != tc.stop || got.GetFailureReason() != tc.reason {
			t.Errorf("%s: %s, %s, want %s, %s", name, got.GetStopReason(), got.GetFailureReason(), tc.stop, tc.reason)
		}
	}
	dying := idlePod(holds(Running), func(p *corev1.Pod) { p.DeletionTimestamp = metaTime(noon) })
	if got := Record(dying, nil, "east").GetPhase(); got != sandboxv1.Phase_STOPPING {
		t.Errorf("a sandbox whose Pod is being deleted is %s", got)
	}
}

func TestARecordShowsTheRuntimeClass(t *testing.T) {
	pod := idlePod(holds(Running))
	if got := Record(pod, nil, "east").GetRuntimeClassName(); got != "" {
		t.Errorf("without a class: %q", got)
	}
	pod.Spec.RuntimeClassName = new("gvisor")
	if got := Record(pod, nil, "east").GetRuntimeClassName(); got != "gvisor" {
		t.Errorf("with class gvisor: %q", got)
	}
}

// Whatever an annotation contains, reading it neither fails nor invents anything.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{"", "120", "-1", "9223372036854775807", "2026-03-01T12:00:00Z", `{"main":"x"}`, `["a"]`, "a,b", "\xff"} {
		f.Add(seed)
	}
	keys := append([]string{v1alpha1.RecyclePolicyAnnotationKey}, v1alpha1.TenantAnnotationKeys...)
	f.Fuzz(func(t *testing.T, value string) {
		pod := idlePod(holds(Stopping))
		for _, key := range keys {
			pod.Annotations[key] = value
		}
		s := Read(pod)
		if s.Timeouts.Idle < 0 || s.Timeouts.Startup < 0 || s.Attempt < 0 {
			t.Errorf("%q reads as %+v", value, s)
		}
		if s.Timeouts.Startup > 0 && formatSeconds(s.Timeouts.Startup) != strings.TrimLeft(strings.TrimPrefix(value, "+"), "0") {
			t.Errorf("%q reads as a timeout of %s", value, s.Timeouts.Startup)
		}
		TerminalRecord(pod, nil, "east", noon, nil)
		if _, err := apply(t, pod, IdlePatch(pod, poolSpec(), noon)); err != nil {
			t.Errorf("%q leaves a Pod that cannot become idle: %v", value, err)
		}
	})
}
