// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
)

func node(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	}}}
	for _, f := range change {
		f(n)
	}
	return n
}

func TestClaimable(t *testing.T) {
	ready := func(c *corev1.PodCondition) { c.Status = corev1.ConditionFalse }
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		node *corev1.Node
		want Claimability
	}{
		"idle and ready": {idlePod(), node(), ClaimableNow},
		"marked for scale-down": {
			idlePod(annotated(v1alpha1.SandboxScaleDownProtectedAnnotationKey, "2026-03-01T11:00:00Z")), node(), ClaimableNow,
		},
		"running":                {idlePod(holds(Running)), node(), NotIdle},
		"running, labelled idle": {idlePod(holds(Running), labelled(v1alpha1.SandboxPhaseLabelKey, "idle")), node(), NotIdle},
		"running, labelled idle and without the label of its sandbox": {
			idlePod(holds(Running), labelled(v1alpha1.SandboxPhaseLabelKey, "idle"), labelled(v1alpha1.SandboxIDLabelKey, "")), node(), NotIdle,
		},
		"no phase":    {idlePod(func(p *corev1.Pod) { delete(p.Labels, v1alpha1.SandboxPhaseLabelKey) }), node(), NotIdle},
		"terminating": {idlePod(func(p *corev1.Pod) { p.DeletionTimestamp = metaTime(noon) }), node(), Terminating},
		"being evicted": {idlePod(func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
		}), node(), BeingDisrupted},
		"not ready":               {idlePod(func(p *corev1.Pod) { ready(&p.Status.Conditions[0]) }), node(), NotReady},
		"no conditions":           {idlePod(func(p *corev1.Pod) { p.Status.Conditions = nil }), node(), NotReady},
		"container not ready":     {idlePod(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }), node(), NotReady},
		"container without an id": {idlePod(runs(idleImage, "")), node(), NotReady},
		"container waiting": {idlePod(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }), node(),
			NotReady},
		"image changed, not swapped": {idlePod(func(p *corev1.Pod) { p.Spec.Containers[0].Image = tenantImage }), node(), ImageMismatch},
		"runtime's own name, spec unchanged": {
			idlePod(func(p *corev1.Pod) { p.Generation = 1; p.Status.ContainerStatuses[0].Image = "sha256:0123" }), node(), ClaimableNow,
		},
		"runtime's own name, spec changed": {
			idlePod(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Image = "sha256:0123" }), node(), ImageMismatch,
		},
		"unknown node":     {idlePod(), nil, NodeUnknown},
		"cordoned node":    {idlePod(), node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), NodeCordoned},
		"unready node":     {idlePod(), node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }), NodeUnready},
		"silent node":      {idlePod(), node(func(n *corev1.Node) { n.Status.Conditions = nil }), NodeUnready},
		"terminating node": {idlePod(), node(func(n *corev1.Node) { n.DeletionTimestamp = metaTime(noon) }), NodeTerminating},
	} {
		if got := Claimable(tc.pod, tc.node); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// I13: only another container, of the idle image, ends a reset.
func TestI13ResetDone(t *testing.T) {
	status := func(f func(*corev1.ContainerStatus)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { f(&p.Status.ContainerStatuses[0]) }
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"another container of the idle image": {func(*corev1.Pod) {}, true},
		"the tenant's container":              {status(func(c *corev1.ContainerStatus) { c.ContainerID = "containerd://c2" }), false},
		"the tenant's image restarted":        {status(func(c *corev1.ContainerStatus) { c.Image = tenantImage }), false},
		"an image that has lost its name":     {status(func(c *corev1.ContainerStatus) { c.Image = "sha256:0123" }), false},
		"no container reported":               {func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, false},
		"no id reported":                      {status(func(c *corev1.ContainerStatus) { c.ContainerID = "" }), false},
		"not running":                         {status(func(c *corev1.ContainerStatus) { c.State.Running = nil }), false},
		"not ready":                           {status(func(c *corev1.ContainerStatus) { c.Ready = false }), false},
		"Pod not ready":                       {func(p *corev1.Pod) { p.Status.Conditions = nil }, false},
		"status older than the reset":         {func(p *corev1.Pod) { p.Generation, p.Status.ObservedGeneration = 5, 4 }, false},
		"status of the reset":                 {func(p *corev1.Pod) { p.Generation, p.Status.ObservedGeneration = 5, 5 }, true},
		"no container noted at release":       {annotated(v1alpha1.SandboxContainerIDAnnotationKey, ""), false},
		"idle image was not put back":         {func(p *corev1.Pod) { p.Spec.Containers[0].Image = tenantImage }, false},
		"tenant ran the idle image":           {annotated(v1alpha1.SandboxRunningImagesAnnotationKey, `{"main":"`+idleImage+`"}`), false},
		"tenant's image not noted":            {annotated(v1alpha1.SandboxRunningImagesAnnotationKey, ""), false},
		"debugged since":                      {func(p *corev1.Pod) { p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}} }, false},
		"idle already":                        {func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxPhaseLabelKey] = "idle" }, false},
	} {
		if got := ResetDone(stopped(tc.change), poolSpec()); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestSameImage(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"nginx", "docker.io/library/nginx:latest", true},
		{"nginx:1", "docker.io/nginx:1", true},
		{"team/app:1", "index.docker.io/team/app:1", true},
		{"localhost/app", "localhost/app:latest", true},
		{"registry.test:5000/app", "registry.test:5000/app:latest", true},
		{"registry.test/app:1" + digest, "registry.test/app" + digest, true},
		{"nginx:1", "nginx:2", false},
		{"registry.test/app:1", "docker.io/app:1", false},
		{"registry.test/app:1", "registry.test/app" + digest, false},
		{"app", "sha256:0123", false},
		{"", "", false},
	} {
		if got := SameImage(tc.a, tc.b); got != tc.same {
			t.Errorf("%q and %q: same %v, want %v", tc.a, tc.b, got, tc.same)
		}
	}
}

func TestObserve(t *testing.T) {
	ended := func(id string, code int32, reason string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ContainerID: id, ExitCode: code, Reason: reason}
	}
	status := func(f func(*corev1.ContainerStatus)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { f(&p.Status.ContainerStatuses[0]) }
	}
	terminated := func(id string, code int32, reason string) func(*corev1.Pod) {
		return status(func(c *corev1.ContainerStatus) { c.State = corev1.ContainerState{Terminated: ended(id, code, reason)} })
	}
	lastEnd := func(id string, code int32, reason string) func(*corev1.Pod) {
		return status(func(c *corev1.ContainerStatus) {
			c.LastTerminationState = corev1.ContainerState{Terminated: ended(id, code, reason)}
		})
	}
	waiting := func(reason string) func(*corev1.Pod) {
		return status(func(c *corev1.ContainerStatus) {
			c.Image, c.ContainerID = tenantImage, ""
			c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
		})
	}
	running := annotated(v1alpha1.SandboxContainerIDAnnotationKey, "c2")
	swapped := annotated(v1alpha1.SwapFromContainerIDAnnotationKey, "c1")
	type want struct {
		progress Progress
		stop     v1alpha1.SandboxStopReason
		reason   string
	}
	for name, tc := range map[string]struct {
		phase  Phase
		change []func(*corev1.Pod)
		want   want
	}{
		"runs":                      {Running, []func(*corev1.Pod){running}, want{progress: Up}},
		"runs, and has no id noted": {Running, nil, want{progress: Up}},
		"runs, and has no id":       {Running, []func(*corev1.Pod){running, runs(tenantImage, "")}, want{progress: Up}},
		"exited, and had no id noted": {Running, []func(*corev1.Pod){terminated("c2", 0, "Completed")},
			want{Ending, v1alpha1.SandboxStopReasonCompleted, ""}},
		"has no id noted, and an end without one is in the report": {Running, []func(*corev1.Pod){lastEnd("", 137, "ContainerStatusUnknown")},
			want{progress: Up}},
		"exited with 0": {Running, []func(*corev1.Pod){running, terminated("c2", 0, "Completed")},
			want{Ending, v1alpha1.SandboxStopReasonCompleted, ""}},
		"killed": {Running, []func(*corev1.Pod){running, terminated("c2", 137, "OOMKilled")},
			want{Ending, v1alpha1.SandboxStopReasonFailed, "OOMKilled"}},
		"exited and restarted": {Running, []func(*corev1.Pod){running, runs(tenantImage, "c3"), lastEnd("c2", 0, "Completed")},
			want{Over, v1alpha1.SandboxStopReasonCompleted, ""}},
		"restarted unseen": {Running, []func(*corev1.Pod){running, runs(tenantImage, "c4")},
			want{Over, v1alpha1.SandboxStopReasonFailed, "ContainerRestarted"}},
		"swapped, the idle container's end is in the report": {Running, []func(*corev1.Pod){running, lastEnd("c1", 137, "Error")},
			want{progress: Up}},
		"evicted": {Running, []func(*corev1.Pod){running, terminated("c2", 0, "Completed"), func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
		}}, want{Over, v1alpha1.SandboxStopReasonFailed, "Evicted"}},

		"old container still there": {Starting, []func(*corev1.Pod){swapped, runs(tenantImage, "c1")}, want{Waiting, "", "Swapping"}},
		"old container ended": {Starting, []func(*corev1.Pod){swapped, status(func(c *corev1.ContainerStatus) {
			c.ContainerID, c.State = "c1", corev1.ContainerState{Terminated: ended("c1", 0, "Completed")}
		})}, want{Waiting, "", "Swapping"}},
		"old image restarted": {Starting, []func(*corev1.Pod){swapped,
			status(func(c *corev1.ContainerStatus) { c.Image, c.ContainerID = idleImage, "c9" })}, want{Waiting, "", "Swapping"}},
		"new container has no id": {Starting, []func(*corev1.Pod){swapped, runs(tenantImage, "")}, want{Waiting, "", "Swapping"}},
		"an end without an id is in the report": {Starting, []func(*corev1.Pod){swapped, waiting("CrashLoopBackOff"),
			lastEnd("", 137, "ContainerStatusUnknown")}, want{Waiting, "", "CrashLoopBackOff"}},
		"pulling": {Starting, []func(*corev1.Pod){swapped, waiting("ContainerCreating")},
			want{Waiting, "", "ContainerCreating"}},
		"first pull failed": {Starting, []func(*corev1.Pod){swapped, waiting("ErrImagePull")}, want{Waiting, "", "ErrImagePull"}},
		"pulls fail": {Starting, []func(*corev1.Pod){swapped, waiting("ImagePullBackOff")},
			want{Over, v1alpha1.SandboxStopReasonFailed, "ImagePullBackOff"}},
		"held back by the kubelet": {Starting, []func(*corev1.Pod){swapped, waiting("CrashLoopBackOff")}, want{Waiting, "", "CrashLoopBackOff"}},
		"the end of an earlier tenant's container is in the report": {Starting,
			[]func(*corev1.Pod){swapped, lastEnd("c0", 0, "Completed")}, want{progress: Up}},
		"created, and an earlier tenant's end is in the report": {Starting, []func(*corev1.Pod){swapped, waiting(""),
			status(func(c *corev1.ContainerStatus) {
				c.ContainerID, c.LastTerminationState = "c2", corev1.ContainerState{Terminated: ended("c0", 0, "Completed")}
			})}, want{Waiting, "", ""}},
		"crashed once, and runs again": {Starting, []func(*corev1.Pod){swapped, runs(tenantImage, "c3"), lastEnd("c2", 1, "Error")},
			want{progress: Up}},
		"crashed": {Starting, []func(*corev1.Pod){swapped, waiting("CrashLoopBackOff"), status(func(c *corev1.ContainerStatus) {
			c.ContainerID, c.LastTerminationState = "c2", corev1.ContainerState{Terminated: ended("c2", 1, "Error")}
		})}, want{Over, v1alpha1.SandboxStopReasonFailed, "Error"}},
		"done before it was seen running": {Starting, []func(*corev1.Pod){swapped, runs(tenantImage, "c2"),
			terminated("c2", 0, "Completed")}, want{Over, v1alpha1.SandboxStopReasonCompleted, ""}},
		"kept, up": {Starting, []func(*corev1.Pod){running}, want{progress: Up}},
		"kept, no name of its image": {Starting, []func(*corev1.Pod){running,
			status(func(c *corev1.ContainerStatus) { c.Image = "sha256:0123" })}, want{progress: Up}},
		"kept, not ready": {Starting, []func(*corev1.Pod){running, status(func(c *corev1.ContainerStatus) { c.Ready = false })},
			want{Waiting, "", "NotReady"}},
		"kept, restarted": {Starting, []func(*corev1.Pod){running, runs(tenantImage, "c4")},
			want{Over, v1alpha1.SandboxStopReasonFailed, "ContainerRestarted"}},
		"kept, killed": {Starting, []func(*corev1.Pod){running, terminated("c2", 137, "OOMKilled")},
			want{Over, v1alpha1.SandboxStopReasonFailed, "OOMKilled"}},
		// The Pod's condition is of the container before: only the new one's own readiness counts.
		"swapped, not ready, and the Pod still is": {Starting, []func(*corev1.Pod){swapped, runs(tenantImage, "c2"),
			status(func(c *corev1.ContainerStatus) { c.Ready = false })}, want{Waiting, "", "NotReady"}},
		"not ready yet": {Starting, []func(*corev1.Pod){swapped, runs(tenantImage, "c2"),
			status(func(c *corev1.ContainerStatus) { c.Ready = false })}, want{Waiting, "", "NotReady"}},
		"up": {Starting, []func(*corev1.Pod){swapped, runs(tenantImage, "c2")}, want{progress: Up}},
	} {
		pod := idlePod(append([]func(*corev1.Pod){holds(tc.phase), runs(tenantImage, "c2")}, tc.change...)...)
		o := Observe(pod)
		got := want{o.Progress, o.End.StopReason, o.End.Reason + o.Detail.Reason}
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
