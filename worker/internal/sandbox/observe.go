// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// Progress is the state of a live sandbox, as the kubelet reports it.
type Progress string

// The results of Observe.
const (
	// Waiting: a swap is in progress. Detail says what it waits for.
	Waiting Progress = "Waiting"
	// Up: the container of the sandbox is running. On a starting Pod, write StartPatch.
	Up Progress = "Up"
	// Ending: its container has ended, and the kubelet has not reported what follows. A container that handles the signal of an eviction exits
	// with 0, like one that has completed; only a later report distinguishes them. End is what is known so far.
	Ending Progress = "Ending"
	// Over: the sandbox has ended on its own. End says how; write ReleasePatch.
	Over Progress = "Over"
)

// End is how a sandbox ended.
type End struct {
	StopReason v1alpha1.SandboxStopReason
	Reason     string // for machines
	Message    string // for users
	ExitCode   *int32
}

// Observation is the result of Observe.
type Observation struct {
	Progress Progress
	Detail   v1alpha1.SandboxStatusDetail // while Waiting; the writer sets LastUpdatedTime
	End      End                          // when Ending or Over
}

// hopeless has the waiting reasons that do not resolve themselves. ErrImagePull is not among them, because the kubelet retries once before
// it reports ImagePullBackOff.
var hopeless = map[string]bool{
	"ImagePullBackOff": true, "InvalidImageName": true, "ErrImageNeverPull": true, "ImageInspectError": true,
	"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true,
}

// Observe returns the state of a starting or running sandbox.
func Observe(pod *corev1.Pod) Observation {
	if Finished(pod) {
		return Observation{Progress: Over, End: podEnd(pod)}
	}
	cs := mainStatus(pod)
	switch {
	case PhaseOf(pod) == Running:
		return observeRunning(pod, cs)
	case keeps(pod):
		return observeKept(pod, cs)
	default:
		return observeStarting(pod, cs)
	}
}

// keeps reports whether a starting sandbox runs in the container that its Pod had when it was claimed.
func keeps(pod *corev1.Pod) bool {
	return pod.Annotations[v1alpha1.SwapFromContainerIDAnnotationKey] == "" && pod.Annotations[v1alpha1.SandboxContainerIDAnnotationKey] != ""
}

// observeKept observes a sandbox that starts without a swap. Like a running one, it ends with its container.
func observeKept(pod *corev1.Pod, cs *corev1.ContainerStatus) Observation {
	o := observeRunning(pod, cs)
	switch {
	case o.Progress == Ending:
		o.Progress = Over
	case o.Progress == Up && !runsReady(cs):
		return waits("NotReady", "its container is not ready")
	}
	return o
}

func waits(reason, message string) Observation {
	return Observation{Progress: Waiting, Detail: v1alpha1.SandboxStatusDetail{Reason: reason, Message: message}}
}

// observeRunning recognizes the end of the sandbox's one container, even if its successor already runs.
func observeRunning(pod *corev1.Pod, cs *corev1.ContainerStatus) Observation {
	if cs == nil {
		return Observation{Progress: Up}
	}
	own := pod.Annotations[v1alpha1.SandboxContainerIDAnnotationKey]
	if t := cs.State.Terminated; t != nil && (t.ContainerID == own || own == "") {
		return Observation{Progress: Ending, End: containerEnd(t)}
	}
	if t := cs.LastTerminationState.Terminated; t != nil && own != "" && t.ContainerID == own {
		return Observation{Progress: Over, End: containerEnd(t)}
	}
	if own != "" && cs.ContainerID != "" && cs.ContainerID != own {
		return Observation{Progress: Over, End: End{
			StopReason: v1alpha1.SandboxStopReasonFailed, Reason: "ContainerRestarted",
			Message: fmt.Sprintf("container %s was replaced by %s", own, cs.ContainerID),
		}}
	}
	return Observation{Progress: Up}
}

// observeStarting ignores the container from before the swap, whose end the kubelet reports as well.
func observeStarting(pod *corev1.Pod, cs *corev1.ContainerStatus) Observation {
	old := pod.Annotations[v1alpha1.SwapFromContainerIDAnnotationKey]
	image := pod.Spec.Containers[0].Image
	if cs == nil {
		return waits("Pending", "the kubelet has not reported the container")
	}
	if t := ended(cs); t != nil && t.ContainerID != old && cs.ContainerID != old && reports(cs, image) {
		return Observation{Progress: Over, End: containerEnd(t)}
	}
	if w := cs.State.Waiting; w != nil {
		if hopeless[w.Reason] {
			return Observation{Progress: Over, End: End{
				StopReason: v1alpha1.SandboxStopReasonFailed, Reason: w.Reason, Message: w.Message,
			}}
		}
		return waits(w.Reason, w.Message)
	}
	if cs.State.Running == nil || cs.ContainerID == "" || cs.ContainerID == old || !reports(cs, image) {
		return waits("Swapping", "waiting for a container of "+image)
	}
	if !cs.Ready {
		return waits("NotReady", "the container of "+image+" is not ready yet")
	}
	return Observation{Progress: Up}
}

// ended returns how the container that the kubelet names has ended. If the container will be restarted, this is its last state. The last
// state of a running container says nothing about a swap: a kubelet that has not reported the end of the previous container keeps an
// earlier one's (v1.36), which is another tenant's.
func ended(cs *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	t := cs.State.Terminated
	if cs.State.Waiting != nil {
		t = cs.LastTerminationState.Terminated
	}
	if t == nil || t.ContainerID == "" || t.ContainerID != cs.ContainerID {
		return nil
	}
	return t
}

func restartsAlways(spec *corev1.PodSpec) bool {
	return spec.RestartPolicy == "" || spec.RestartPolicy == corev1.RestartPolicyAlways
}

func containerEnd(t *corev1.ContainerStateTerminated) End {
	code := t.ExitCode
	if code == 0 {
		return End{StopReason: v1alpha1.SandboxStopReasonCompleted, ExitCode: &code}
	}
	return End{
		StopReason: v1alpha1.SandboxStopReasonFailed, Reason: cmp.Or(t.Reason, "Error"),
		Message: cmp.Or(t.Message, fmt.Sprintf("the container ended with exit code %d", code)), ExitCode: &code,
	}
}

// nodeEnded is the reason for a Pod that its node ended without giving a reason.
const nodeEnded = "EndedByNode"

// podEnd returns the end of a Pod that has finished. A Pod whose containers always restart finishes only if it is ended from outside.
// Kubelets (v1.36) give no reason when they evict a Pod whose container handles the signal, and report Succeeded; only an Event shows the
// eviction.
func podEnd(pod *corev1.Pod) End {
	if pod.Status.Reason == "" && pod.DeletionTimestamp == nil && restartsAlways(&pod.Spec) {
		end := End{
			StopReason: v1alpha1.SandboxStopReasonFailed, Reason: nodeEnded,
			Message: "the node ended the Pod, as in an eviction; the Pod's events have details",
		}
		if cs := mainStatus(pod); cs != nil && cs.State.Terminated != nil {
			end.ExitCode = new(cs.State.Terminated.ExitCode)
		}
		return end
	}
	if cs := mainStatus(pod); cs != nil && cs.State.Terminated != nil && pod.Status.Reason == "" {
		return containerEnd(cs.State.Terminated)
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		return End{StopReason: v1alpha1.SandboxStopReasonCompleted}
	}
	return End{
		StopReason: v1alpha1.SandboxStopReasonFailed, Reason: cmp.Or(pod.Status.Reason, "PodFailed"), Message: pod.Status.Message,
	}
}
