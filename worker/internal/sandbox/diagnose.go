// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/outcome"
)

// Reasons of a Diagnosis besides those of kubelet and scheduler.
const (
	// ReasonPulling: an image is being pulled or a container created; kubelets do not report which.
	ReasonPulling = "Pulling"
	// ReasonNotReady: a container runs and its readiness probe has not succeeded.
	ReasonNotReady = "NotReady"
	// ReasonHooks: the Pod is ready, and hooks or checks run before the sandbox does.
	ReasonHooks = "PostStartHooks"
	// ReasonHookFailing: a hook has failed and is retried.
	ReasonHookFailing = "PostStartHookFailing"
)

// Diagnosis is why a Pod does not serve; zero if it does, or if the reason is unknown.
type Diagnosis struct{ Reason, Message string }

// Diagnose returns, from the Pod alone, why a starting or failed sandbox does not run, or why an idle Pod is not ready.
func Diagnose(pod *corev1.Pod) Diagnosis {
	if pod.DeletionTimestamp != nil {
		return Diagnosis{}
	}
	var d Diagnosis
	switch PhaseOf(pod) {
	case Failed:
		d = Diagnosis{pod.Annotations[v1alpha1.SandboxFailureReasonAnnotationKey], pod.Annotations[v1alpha1.SandboxFailureMessageAnnotationKey]}
		if d.Reason == "" {
			d = unready(pod)
		}
	case Starting:
		d = starting(pod)
	case Running:
		if Preparing(pod) {
			d = Diagnosis{outcome.Preparing, "it runs, and its daemon gets the environment of the claim"}
		}
	case Idle:
		if ReadyCondition(pod) == nil {
			d = unready(pod)
		}
	}
	d.Message = clip.Text(d.Message, maxMessage)
	return d
}

func starting(pod *corev1.Pod) Diagnosis {
	o := Observe(pod)
	switch o.Progress {
	case Over:
		return Diagnosis{o.End.Reason, o.End.Message}
	case Up:
		if ReadyCondition(pod) == nil {
			return unready(pod)
		}
		return Diagnosis{ReasonHooks, "the Pod is ready; its readiness checks and post-start hooks are under way"}
	}
	switch o.Detail.Reason {
	case "", "Pending", "Swapping", "ContainerCreating", "PodInitializing":
		image := ""
		if len(pod.Spec.Containers) > 0 {
			image = pod.Spec.Containers[0].Image
		}
		return Diagnosis{ReasonPulling, "the image " + image + " is being pulled, or its container created"}
	}
	// For a container that is held back after a swap, the reported last termination is of an earlier container, and of another tenant.
	return Diagnosis{o.Detail.Reason, o.Detail.Message}
}

// unready returns the first cause, in the order in which a Pod meets them.
func unready(pod *corev1.Pod) Diagnosis {
	if Finished(pod) {
		end := podEnd(pod)
		return Diagnosis{cmp.Or(end.Reason, "PodFinished"), end.Message}
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return Diagnosis{c.Reason, c.Message}
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if d := trouble(&statuses[i]); d.Reason != "" {
				return d
			}
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if cs := &pod.Status.ContainerStatuses[i]; cs.State.Running != nil && !cs.Ready {
			return Diagnosis{ReasonNotReady, "container " + cs.Name + " runs and is not ready"}
		}
	}
	return Diagnosis{ReasonPulling, "containers are being created, or their images pulled"}
}

// trouble returns what keeps a container from running. It returns the zero value if the container runs, has finished, or is being created.
func trouble(cs *corev1.ContainerStatus) Diagnosis {
	if w := cs.State.Waiting; w != nil {
		switch w.Reason {
		case "", "ContainerCreating", "PodInitializing":
			return Diagnosis{}
		case "CrashLoopBackOff":
			return crashing(cs, w.Message)
		}
		return Diagnosis{w.Reason, w.Message}
	}
	if t := cs.State.Terminated; t != nil && t.ExitCode != 0 {
		end := containerEnd(t)
		return Diagnosis{end.Reason, "container " + cs.Name + ": " + end.Message}
	}
	return Diagnosis{}
}

// crashing returns why a container is held back: its last termination, which says more than the back-off.
func crashing(cs *corev1.ContainerStatus, message string) Diagnosis {
	t := ended(cs)
	if t == nil {
		return Diagnosis{"CrashLoopBackOff", message}
	}
	if t.Reason == "OOMKilled" {
		return Diagnosis{t.Reason, fmt.Sprintf("container %s ran out of memory (exit code %d); %s", cs.Name, t.ExitCode, message)}
	}
	return Diagnosis{"CrashLoopBackOff", fmt.Sprintf("%s; container %s ended before: %s, exit code %d", message, cs.Name, t.Reason,
		t.ExitCode)}
}

// maxMessage bounds messages for users, because kubelets pass on whole pages.
const maxMessage = 1024
