// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
)

func TestDiagnose(t *testing.T) {
	status := func(f func(*corev1.ContainerStatus)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions[0].Status = corev1.ConditionFalse
			f(&p.Status.ContainerStatuses[0])
		}
	}
	waiting := func(reason, message string) func(*corev1.Pod) {
		return status(func(c *corev1.ContainerStatus) {
			c.ContainerID, c.Ready = "", false
			c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		})
	}
	crashed := func(own string, t corev1.ContainerStateTerminated) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			waiting("CrashLoopBackOff", "back-off 10s")(p)
			cs := &p.Status.ContainerStatuses[0]
			cs.ContainerID, cs.LastTerminationState.Terminated = own, &t
		}
	}
	unscheduled := func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"},
		}}
	}
	sidecar := func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: "side", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError",
				Message: "no such secret"}},
		})
	}
	start := func(change ...func(*corev1.Pod)) *corev1.Pod {
		base := []func(*corev1.Pod){holds(Starting), annotated(v1alpha1.SwapFromContainerIDAnnotationKey, "c1"), runs(tenantImage, "c2")}
		return idlePod(append(base, change...)...)
	}
	for name, tc := range map[string]struct {
		pod             *corev1.Pod
		reason, message string
	}{
		"idle and ready":      {idlePod(), "", ""},
		"running":             {idlePod(holds(Running), waiting("CrashLoopBackOff", "")), "", ""},
		"being deleted":       {idlePod(unscheduled, func(p *corev1.Pod) { p.DeletionTimestamp = metaTime(noon) }), "", ""},
		"idle, unschedulable": {idlePod(unscheduled), "Unschedulable", "0/3 nodes"},
		"idle, pulls fail":    {idlePod(waiting("ImagePullBackOff", "no such image")), "ImagePullBackOff", "no such image"},
		"idle, out of memory": {idlePod(crashed("c1", corev1.ContainerStateTerminated{ContainerID: "c1", ExitCode: 137,
			Reason: "OOMKilled"})), "OOMKilled", "exit code 137"},
		"idle, crashes": {idlePod(crashed("c1", corev1.ContainerStateTerminated{ContainerID: "c1", ExitCode: 2, Reason: "Error"})),
			"CrashLoopBackOff", "exit code 2"},
		"idle, of an earlier tenant": {idlePod(crashed("c1", corev1.ContainerStateTerminated{ContainerID: "c0", ExitCode: 77})),
			"CrashLoopBackOff", "back-off 10s"},
		"idle, not ready":  {idlePod(status(func(c *corev1.ContainerStatus) { c.Ready = false })), ReasonNotReady, "main"},
		"idle, being made": {idlePod(waiting("ContainerCreating", "")), ReasonPulling, ""},
		"idle, sidecar":    {idlePod(sidecar), "CreateContainerConfigError", "no such secret"},
		"idle, finished": {idlePod(func(p *corev1.Pod) {
			p.Status.Conditions, p.Status.Phase, p.Status.Reason = nil, corev1.PodFailed, "Evicted"
		}), "Evicted", ""},
		"starting, old container":    {start(runs(tenantImage, "c1")), ReasonPulling, tenantImage},
		"starting, pulling":          {start(waiting("ContainerCreating", "")), ReasonPulling, tenantImage},
		"starting, first pull fails": {start(waiting("ErrImagePull", "not found")), "ErrImagePull", "not found"},
		"starting, pulls fail":       {start(waiting("ImagePullBackOff", "not found")), "ImagePullBackOff", "not found"},
		// The last end is the previous tenant's and must not be shown to this one.
		"starting, held back": {start(crashed("", corev1.ContainerStateTerminated{ContainerID: "c0", ExitCode: 77})), "CrashLoopBackOff",
			"back-off 10s"},
		"starting, not ready": {start(status(func(c *corev1.ContainerStatus) { c.Ready = false })), ReasonNotReady, ""},
		"starting, sidecar":   {start(sidecar), "CreateContainerConfigError", "no such secret"},
		"starting, hooks":     {start(), ReasonHooks, ""},
		"failed": {idlePod(holds(Failed), annotated(v1alpha1.SandboxFailureReasonAnnotationKey, "OOMKilled"),
			annotated(v1alpha1.SandboxFailureMessageAnnotationKey, "m")), "OOMKilled", "m"},
		"failed, cause unknown": {idlePod(holds(Failed), unscheduled), "Unschedulable", ""},
		"a message without end": {idlePod(waiting("ErrImagePull", strings.Repeat("é", 4000))), "ErrImagePull", "é…"},
	} {
		got := Diagnose(tc.pod)
		if got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) || len(got.Message) > maxMessage+8 {
			t.Errorf("%s: %+v, want %s: %s", name, got, tc.reason, tc.message)
		}
		if strings.Contains(got.Message, "77") {
			t.Errorf("%s: tells of an earlier tenant: %s", name, got.Message)
		}
		record := Record(tc.pod, nil, "east")
		if record != nil && (record.GetStatusDetail().GetReason() != tc.reason ||
			TerminalRecord(tc.pod, nil, "east", noon, nil).GetStatusDetail() != nil) {
			t.Errorf("%s: recorded as %v", name, record.GetStatusDetail())
		}
	}
}
