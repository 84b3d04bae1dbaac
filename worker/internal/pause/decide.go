// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Step is the next step.
type Step string

// The steps.
const (
	// Rest: no write is needed. The target is reached, or the kubelet is working on it.
	Rest Step = "Rest"
	// Write: the intent must be written. The Pod does not have it yet.
	Write Step = "WriteIntent"
	// Resize: the containers' CPU must be changed.
	Resize Step = "Resize"
	// Clear: the sandbox has its CPU again, and the annotation can be removed.
	Clear Step = "Clear"
	// Refuse: the target cannot be reached. An intent that was written must be taken back.
	Refuse Step = "Refuse"
)

// The reasons why a sandbox cannot be paused. Infeasible is also a reason why one cannot be resumed.
const (
	NothingToFree = "NothingToFree"
	WouldRestart  = "WouldRestart"
	LivenessProbe = "LivenessProbe"
	Infeasible    = corev1.PodReasonInfeasible
	Deferred      = corev1.PodReasonDeferred
)

// Change is the new CPU of a container.
type Change struct {
	Path      string // of the container
	Container string
	CPU       CPU // nil fields stay
}

// Decision is the next step.
type Decision struct {
	Step    Step
	Intent  *Intent  // of Write
	Changes []Change // of Resize
	Reason  string   // of Refuse
	Message string
}

// Decide returns the next step of a Pod towards its target. For a pause whose intent is not written yet, pass a live Pod, because the
// cached fields are not enough.
func Decide(pod *corev1.Pod, target Target, now time.Time) Decision {
	intent := Read(pod)
	switch {
	case intent == nil && target == Running:
		return Decision{Step: Rest}
	case intent == nil:
		return begin(pod, now)
	case intent.Target != target:
		return Decision{Step: Write, Intent: intent.turned(target, now)}
	}
	if changes := changes(pod, intent); len(changes) > 0 {
		return Decision{Step: Resize, Changes: changes}
	}
	switch o := Observe(pod); {
	case o.State == Resumed:
		return Decision{Step: Clear}
	case o.State == Pausing && o.Reason == Infeasible:
		return Decision{Step: Refuse, Reason: o.Reason, Message: "its node cannot: " + o.Message}
	}
	return Decision{Step: Rest}
}

// begin returns the step that saves the containers' CPU, or a refusal if they cannot be paused.
func begin(pod *corev1.Pod, now time.Time) Decision {
	intent := &Intent{Containers: map[string]CPU{}}
	for _, p := range parts(pod) {
		has := cpuOf(&p.spec.Resources)
		if has.equal(has.floor()) {
			continue
		}
		if reason, message := hurt(p.spec); reason != "" {
			return Decision{Step: Refuse, Reason: reason, Message: message}
		}
		intent.Containers[p.spec.Name] = has
	}
	if len(intent.Containers) == 0 {
		return Decision{Step: Refuse, Reason: NothingToFree, Message: "its containers have no CPU request or limit to give back"}
	}
	return Decision{Step: Write, Intent: intent.turned(Paused, now)}
}

// hurt returns why a container would not survive a pause.
func hurt(c *corev1.Container) (reason, message string) {
	for _, policy := range c.ResizePolicy {
		if policy.ResourceName == corev1.ResourceCPU && policy.RestartPolicy == corev1.RestartContainer {
			return WouldRestart, fmt.Sprintf("a change of its CPU would restart container %s, by its resizePolicy", c.Name)
		}
	}
	if p := c.LivenessProbe; p != nil && p.TCPSocket == nil { // the kernel responds to a TCP probe
		return LivenessProbe, fmt.Sprintf(
			"container %s has a liveness probe, which it could not respond to in time, and would be restarted", c.Name)
	}
	return "", ""
}

func changes(pod *corev1.Pod, intent *Intent) []Change {
	var out []Change
	for _, p := range parts(pod) {
		if goal, ok := intent.goal(p.spec.Name); ok && !goal.equal(cpuOf(&p.spec.Resources)) {
			out = append(out, Change{Path: p.path, Container: p.spec.Name, CPU: goal})
		}
	}
	return out
}

// State is the progress of a pause or resume. The zero value is a sandbox with all of its CPU.
type State string

// The states.
const (
	Pausing   State = "Pausing"
	IsPaused  State = "Paused"
	Resuming  State = "Resuming"
	Resumed   State = "Resumed" // the annotation must still be cleared
	Untouched State = ""
)

// Observation is the progress of a pause or resume, and why it is not further.
type Observation struct {
	State   State
	Reason  string // the kubelet's: Deferred, Infeasible, InProgress or Error; empty until it reports one
	Message string
	Since   time.Time // when it was requested
}

// Observe returns the progress that the kubelet reports.
func Observe(pod *corev1.Pod) Observation {
	intent := Read(pod)
	if intent == nil {
		return Observation{}
	}
	o := Observation{Since: intent.Time()}
	o.Reason, o.Message = resizing(pod)
	reached := o.Reason == "" && Observed(pod) && len(changes(pod, intent)) == 0 && reported(pod, intent)
	switch {
	case reached && intent.Target == Paused:
		o.State = IsPaused
	case reached:
		o.State = Resumed
	case intent.Target == Paused:
		o.State = Pausing
	default:
		o.State = Resuming
	}
	return o
}

// Settled reports whether no resize of the Pod is under way and the kubelet has seen its latest generation.
func Settled(pod *corev1.Pod) bool {
	reason, _ := resizing(pod)
	return reason == "" && Observed(pod)
}

// Observed reports whether the kubelet has seen the Pod's latest generation. It returns true if the kubelet reports no generations.
func Observed(pod *corev1.Pod) bool {
	return pod.Status.ObservedGeneration == 0 || pod.Status.ObservedGeneration >= pod.Generation
}

// resizing reads the kubelet's conditions. A condition of an earlier resize does not count.
func resizing(pod *corev1.Pod) (reason, message string) {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Status != corev1.ConditionTrue || c.ObservedGeneration != 0 && c.ObservedGeneration < pod.Generation {
			continue
		}
		switch {
		case c.Type == corev1.PodResizePending:
			return c.Reason, c.Message
		case c.Type == corev1.PodResizeInProgress && c.Reason == "":
			reason, message = "InProgress", c.Message
		case c.Type == corev1.PodResizeInProgress:
			reason, message = c.Reason, c.Message
		}
	}
	return reason, message
}

// reported reports whether the kubelet reports the CPU that the intent asks for. A kubelet that reports no resources has never changed any.
func reported(pod *corev1.Pod, intent *Intent) bool {
	for _, p := range parts(pod) {
		goal, ok := intent.goal(p.spec.Name)
		if !ok {
			continue
		}
		switch {
		case p.status == nil:
			return false
		case p.status.Resources == nil && intent.Target == Running:
		case p.status.Resources == nil || !goal.equal(cpuOf(p.status.Resources)):
			return false
		}
	}
	return true
}
