// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// IdleSince returns when an idle Pod became idle, by the API server's clock: when it was created, or when its last sandbox was removed from
// it.
func IdleSince(pod *corev1.Pod) time.Time {
	since := pod.CreationTimestamp.Time
	if at, err := time.Parse(time.RFC3339, pod.Annotations[v1alpha1.SandboxIdleSinceAnnotationKey]); err == nil && at.After(since) {
		return at
	}
	return since
}

// MarkedAt returns the value of an idle Pod's mark for scale-down, or "" if it has none. Each mark has another value.
func MarkedAt(pod *corev1.Pod) string {
	return pod.Annotations[v1alpha1.SandboxScaleDownProtectedAnnotationKey]
}

// MarkPatch marks an idle Pod for scale-down. It loses to a claim, which changes the phase, and to a claim that has ended, which
// changes the idle time.
func MarkPatch(pod *corev1.Pod, now time.Time) []byte { return markPatch(pod, formatTime(now)) }

// UnmarkPatch removes the mark.
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
