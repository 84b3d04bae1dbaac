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

// stageOf returns the name of the Pod's stage whose duration matters, or "" if the Pod is not timed. Each new stage has another name.
func stageOf(pod *corev1.Pod) string {
	switch phase := sandbox.PhaseOf(pod); {
	case pod.DeletionTimestamp != nil:
		return ""
	case phase == sandbox.Starting, phase == sandbox.Stopping:
		return string(phase) + "/" + pod.Labels[v1alpha1.SandboxIDLabelKey]
	case phase == sandbox.Running && sandbox.Observe(pod).Progress == sandbox.Ending:
		return "ending/" + pod.Labels[v1alpha1.SandboxIDLabelKey]
	case phase == sandbox.Idle && sandbox.MarkedAt(pod) != "":
		return "marked/" + sandbox.MarkedAt(pod)
	case phase == sandbox.Idle && !ready(pod):
		return "unready"
	}
	return ""
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

// restarts returns how often containers of the Pod were restarted, including swaps.
func restarts(pod *corev1.Pod) int32 {
	var n int32
	for i := range pod.Status.ContainerStatuses {
		n += pod.Status.ContainerStatuses[i].RestartCount
	}
	return n
}

// outdated reports whether the Pod is of an old template. It returns false for Pods without a revision: they are older than revisions, and
// nothing shows that they differ.
func outdated(s *snapshot, pod *corev1.Pod) bool {
	revision := pod.Annotations[v1alpha1.TemplateRevisionAnnotationKey]
	return revision != "" && revision != s.Revision && revision != s.Unrendered
}

// holdsBack reports whether the Pod's node was seen to delay a restarted container for longer than a new Pod takes.
func holdsBack(s *snapshot, pod *corev1.Pod) bool { return s.HeldBack[pod.Spec.NodeName] > s.NewPod }

// worn reports whether an idle, ready Pod may delay its next sandbox: its container was restarted on a node that delays restarts. A Pod
// that is not ready is kept, because a new one would fare no better.
func worn(s *snapshot, pod *corev1.Pod) bool {
	return ready(pod) && restarts(pod) > 0 && holdsBack(s, pod)
}

// startupTimeout returns how long the Pod may be starting, or 0 for no limit.
func startupTimeout(pool *v1alpha1.SandboxPool, pod *corev1.Pod) time.Duration {
	if own := sandbox.Read(pod).Timeouts.Startup; own > 0 {
		return own
	}
	if pool.Spec.DefaultStartupTimeout != nil {
		return pool.Spec.DefaultStartupTimeout.Duration
	}
	return 0
}

// worthWriting returns false for the reasons that occur in every swap, because writing them would cost one write per sandbox.
func worthWriting(reason string) bool {
	switch reason {
	case "", "Pending", "Swapping", "ContainerCreating", "PodInitializing",
		sandbox.ReasonPulling, sandbox.ReasonNotReady, sandbox.ReasonHooks:
		return false
	}
	return true
}

// statusDetailReason returns the reason of the status detail in the Pod's annotation.
func statusDetailReason(pod *corev1.Pod) string {
	var detail v1alpha1.SandboxStatusDetail
	if value := pod.Annotations[v1alpha1.SandboxStatusDetailAnnotationKey]; value != "" {
		if json.Unmarshal([]byte(value), &detail) != nil {
			return ""
		}
	}
	return detail.Reason
}

// orphaned reports whether the Pod has no controller, as after its pool was deleted with --cascade=orphan. It belongs to the next pool of
// the name in its labels.
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
