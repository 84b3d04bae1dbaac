// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// stageOf names the stage whose duration matters, including everything that begins a new one; "" for Pods that are not timed.
func stageOf(pod *corev1.Pod) string {
	switch phase := sandbox.PhaseOf(pod); {
	case pod.DeletionTimestamp != nil:
		return ""
	case phase == sandbox.Starting, phase == sandbox.Stopping:
		return string(phase) + "/" + pod.Labels[v1alpha1.SandboxIDLabelKey]
	case phase == sandbox.Running && sandbox.Observe(pod).Progress == sandbox.Ending:
		return "ending/" + pod.Labels[v1alpha1.SandboxIDLabelKey]
	case phase == sandbox.Idle && marking(pod) != "":
		return "marked/" + marking(pod)
	case phase == sandbox.Idle && !ready(pod):
		return "unready"
	}
	return ""
}

// marking returns when the Pod was marked for scale-down; "" if it is not.
func marking(pod *corev1.Pod) string {
	return sandbox.MarkedAt(pod)
}

// holdsReplica reports whether the Pod counts towards replicas.
func holdsReplica(pod *corev1.Pod) bool {
	switch sandbox.PhaseOf(pod) {
	case sandbox.Idle, sandbox.Starting, sandbox.Running, sandbox.Stopping:
		return true
	}
	return false
}

func ready(pod *corev1.Pod) bool { return sandbox.ReadyCondition(pod) != nil }

// restarts returns how many containers of the Pod replaced another one, swaps included.
func restarts(pod *corev1.Pod) int32 {
	var n int32
	for i := range pod.Status.ContainerStatuses {
		n += pod.Status.ContainerStatuses[i].RestartCount
	}
	return n
}

// outdated is false for Pods without a revision; because they are older than revisions, and nothing says that they differ.
func outdated(s *snapshot, pod *corev1.Pod) bool {
	revision := pod.Annotations[v1alpha1.TemplateRevisionAnnotationKey]
	return revision != "" && revision != s.Revision && revision != s.Unrendered
}

// holdsBack reports whether the Pod is on a node that was seen to hold back a container which ran there before, for longer than a
// new Pod takes.
func holdsBack(s *snapshot, pod *corev1.Pod) bool { return s.HeldBack[pod.Spec.NodeName] > s.NewPod }

// worn reports whether an idle Pod that could serve may delay its next sandbox: it ran other images on a node that holds back. A
// Pod that is not ready is kept; because a new one would fare no better.
func worn(s *snapshot, pod *corev1.Pod) bool {
	return ready(pod) && restarts(pod) > 0 && holdsBack(s, pod)
}

// startupTimeout is how long the Pod may be starting; 0: no limit.
func startupTimeout(pool *v1alpha1.SandboxPool, pod *corev1.Pod) time.Duration {
	if own := sandbox.Read(pod).Timeouts.Startup; own > 0 {
		return own
	}
	if pool.Spec.DefaultStartupTimeout != nil {
		return pool.Spec.DefaultStartupTimeout.Duration
	}
	return 0
}

// noteworthy is false for the reasons that every swap passes through; because writing them would cost one write per sandbox.
func noteworthy(reason string) bool {
	switch reason {
	case "", "Pending", "Swapping", "ContainerCreating", "PodInitializing",
		sandbox.ReasonPulling, sandbox.ReasonNotReady, sandbox.ReasonHooks:
		return false
	}
	return true
}

// statusDetailReason returns the reason in the status detail that the Pod carries.
func statusDetailReason(pod *corev1.Pod) string {
	var detail v1alpha1.SandboxStatusDetail
	if value := pod.Annotations[v1alpha1.SandboxStatusDetailAnnotationKey]; value != "" {
		if json.Unmarshal([]byte(value), &detail) != nil {
			return ""
		}
	}
	return detail.Reason
}

// orphaned reports whether the Pod was left by a pool that was deleted with --cascade=orphan. It belongs to the next pool of the
// name in its labels.
func orphaned(pod *corev1.Pod) bool { return metav1.GetControllerOfNoCopy(pod) == nil }

func hasPoolFinalizer(pool *v1alpha1.SandboxPool) bool {
	return slices.Contains(pool.Finalizers, v1alpha1.SandboxPoolFinalizer)
}

// first sorts true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
