// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// TimeoutsChange is a caller's change to a live sandbox. A nil field changes nothing, and zero removes the timeout.
type TimeoutsChange struct {
	Idle        *time.Duration
	MaxLifetime *time.Duration
}

// TimeoutsPatch changes the timeouts of a live sandbox. It also removes the first-activity timeout, because the caller evidently
// has the sandbox.
func TimeoutsPatch(pod *corev1.Pod, change TimeoutsChange) []byte {
	p := newPatch(768)
	p.testSandbox(pod)
	p.changeSeconds(v1alpha1.SandboxIdleTimeoutAnnotationKey, change.Idle)
	p.changeSeconds(v1alpha1.SandboxMaxLifetimeAnnotationKey, change.MaxLifetime)
	p.clear(pod, v1alpha1.SandboxFirstActivityTimeoutAnnotationKey)
	return p.bytes()
}

func (p *patch) changeSeconds(key string, d *time.Duration) {
	switch {
	case d == nil:
	case *d > 0:
		p.setSeconds(key, *d)
	default:
		p.setAnnotation(key, "")
	}
}

// Preparing reports whether the sandbox on a Pod waits for values of the claim that its daemon must receive.
func Preparing(pod *corev1.Pod) bool {
	return pod.Annotations[v1alpha1.SandboxPreparingAnnotationKey] == "true"
}

// PreparedPatch ends the preparation of a sandbox. Like ActivePatch, it does not test the phase.
func PreparedPatch(pod *corev1.Pod) []byte {
	p := newPatch(256)
	p.testTenant(pod)
	p.setAnnotation(v1alpha1.SandboxPreparingAnnotationKey, "")
	return p.bytes()
}

// ActivePatch records when a sandbox was last active. It does not test the phase, because it must not conflict with a start, and
// does no harm on a stopping Pod.
func ActivePatch(pod *corev1.Pod, at time.Time) []byte {
	p := newPatch(512)
	p.testTenant(pod)
	p.setTime(v1alpha1.SandboxLastActiveAnnotationKey, at)
	return p.bytes()
}
