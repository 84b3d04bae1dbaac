// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// IdleSince is when an idle Pod became so, by the API server's clock: at its birth, or in the write that ended its last
// sandbox's time on it.
func IdleSince(pod *corev1.Pod) time.Time {
	since := pod.CreationTimestamp.Time
	if at, err := time.Parse(time.RFC3339, pod.Annotations[v1alpha1.SandboxIdleSinceAnnotationKey]); err == nil && at.After(since) {
		return at
	}
	return since
}

// MarkedAt is the value by which an idle Pod is marked for scale-down; "" if it is not. It tells one marking from the next.
func MarkedAt(pod *corev1.Pod) string {
	return pod.Annotations[v1alpha1.SandboxScaleDownProtectedAnnotationKey]
}

// MarkPatch marks an idle Pod for scale-down. It loses to a claim, which changes the phase, and to one that is over, which has
// changed since when the Pod is idle.
func MarkPatch(pod *corev1.Pod, now time.Time) []byte { return markPatch(pod, formatTime(now)) }

// UnmarkPatch takes the mark off.
func UnmarkPatch(pod *corev1.Pod) []byte { return markPatch(pod, "") }

func markPatch(pod *corev1.Pod, value string) []byte {
	p := newPatch(256)
	p.testUID(pod)
	p.testLabel(v1alpha1.SandboxPhaseLabelKey, string(Idle))
	p.testAlive()
	p.testAnnotation(pod, v1alpha1.SandboxIdleSinceAnnotationKey)
	p.setAnnotation(v1alpha1.SandboxScaleDownProtectedAnnotationKey, value)
	return p.bytes()
}
