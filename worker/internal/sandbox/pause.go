// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/pause"
)

// PausePatch writes the pause intent of a running sandbox; nil resumes it with all of its CPU. The patch also removes the first-activity
// timeout, because the caller evidently has the sandbox. Resuming a sandbox counts as activity.
func PausePatch(pod *corev1.Pod, intent *pause.Intent, now time.Time) ([]byte, error) {
	value, err := intent.Encode()
	if err != nil {
		return nil, err
	}
	p := newPatch(1024)
	p.testSandbox(pod)
	p.testAlive()
	p.testAnnotation(pod, v1alpha1.SandboxPauseAnnotationKey)
	p.setAnnotation(v1alpha1.SandboxPauseAnnotationKey, value)
	p.clear(pod, v1alpha1.SandboxFirstActivityTimeoutAnnotationKey)
	if intent == nil || intent.Target == pause.Running {
		p.setTime(v1alpha1.SandboxLastActiveAnnotationKey, now)
	}
	return p.bytes(), nil
}

// ResizePatch changes the CPU of a running sandbox's containers, through the Pod's resize subresource. It tests the intent, because a new
// intent needs a new decision.
func ResizePatch(pod *corev1.Pod, changes []pause.Change) []byte {
	p := newPatch(1024)
	p.testSandbox(pod)
	p.testAlive()
	p.testAnnotation(pod, v1alpha1.SandboxPauseAnnotationKey)
	for _, c := range changes {
		p.op("test", c.Path+"/name", "", c.Container)
		if c.CPU.Request != nil {
			p.op("replace", c.Path+"/resources/requests/cpu", "", c.CPU.Request.String())
		}
		if c.CPU.Limit != nil {
			p.op("replace", c.Path+"/resources/limits/cpu", "", c.CPU.Limit.String())
		}
	}
	return p.bytes()
}

// pauseOf returns the progress of a pause, or nil for a sandbox that has all of its CPU.
func pauseOf(pod *corev1.Pod) *sandboxv1.Pause {
	if !PhaseOf(pod).Live() {
		return nil
	}
	o := pause.Observe(pod)
	out := &sandboxv1.Pause{Reason: o.Reason, Message: o.Message, Since: timestamp(o.Since)}
	switch o.State {
	case pause.IsPaused:
		out.State = sandboxv1.Pause_PAUSED
	case pause.Pausing:
		out.State = sandboxv1.Pause_PAUSING
	case pause.Resuming, pause.Resumed:
		out.State = sandboxv1.Pause_RESUMING
	default:
		return nil
	}
	return out
}

// Readiness is ReadyNow, or the reason why a sandbox cannot be used.
type Readiness string

// The results of Ready.
const (
	ReadyNow         Readiness = "Ready"
	NotRunning       Readiness = "NotRunning"
	NotObserved      Readiness = "GenerationNotObserved"
	ContainerUnready Readiness = "ContainerNotReady"
	NoAddress        Readiness = "NoAddress"
	BeingResized     Readiness = "Resizing"
)

// OK reports whether the sandbox can be used.
func (r Readiness) OK() bool { return r == ReadyNow }

// Ready returns whether a sandbox can be used: the kubelet has seen the current Pod, its container runs and is ready, it has an
// address, and no resize is in progress.
func Ready(pod *corev1.Pod) Readiness {
	cs := mainStatus(pod)
	switch {
	case PhaseOf(pod) != Running || pod.DeletionTimestamp != nil:
		return NotRunning
	case !pause.Observed(pod):
		return NotObserved
	case !runsReady(cs):
		return ContainerUnready
	case pod.Status.PodIP == "":
		return NoAddress
	case !pause.Settled(pod):
		return BeingResized
	}
	return ReadyNow
}
