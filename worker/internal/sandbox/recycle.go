// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/pause"
)

// RecycleReason is why a Pod may return to idle, or why it is replaced.
type RecycleReason string

// The reasons of Recyclable.
const (
	Resettable           RecycleReason = "Resettable"
	ReplaceByPolicy      RecycleReason = "RecyclePolicy"
	ReplaceGone          RecycleReason = "Terminating"
	ReplacePaused        RecycleReason = "Paused"
	ReplaceNotReset      RecycleReason = "NotReset"
	ReplaceNoContainerID RecycleReason = "ContainerUnknown"
	ReplaceSameImage     RecycleReason = "SameImage"
	ReplaceContainers    RecycleReason = "SeveralContainers"
	ReplaceInit          RecycleReason = "InitContainers"
	ReplaceEphemeral     RecycleReason = "EphemeralContainers"
	ReplaceVolume        RecycleReason = "WritableVolume"
	ReplaceShared        RecycleReason = "SharedNamespace"
	ReplacePrivileged    RecycleReason = "PrivilegedContainer"
	ReplaceNotRestarted  RecycleReason = "RestartPolicy"
	ReplaceRuntime       RecycleReason = "RuntimeClass"
	ReplaceDevices       RecycleReason = "ResourceClaims"
	ReplaceRoot          RecycleReason = "RootUser"
	ReplaceSharedMemory  RecycleReason = "SharedMemory"
	ReplaceIPC           RecycleReason = "IPCObjects"
)

// Recycle decides what happens to a Pod when its sandbox ends.
type Recycle struct {
	Reset  bool // put the idle image back and return to idle; otherwise the Pod is replaced
	Reason RecycleReason
}

// Recyclable returns whether the Pod may return to idle. For a live Pod this is what a release would do, for a stopping Pod what its
// release has done. For a stopping Pod the result may only become stricter, for example after a debug container was added.
func Recyclable(pod *corev1.Pod, pool *v1alpha1.SandboxPoolSpec) Recycle {
	reason := recycleReason(pod, pool)
	return Recycle{Reset: reason == Resettable, Reason: reason}
}

// NeverResetPatch makes the Pod be replaced when its sandbox ends, regardless of its pool.
func NeverResetPatch(pod *corev1.Pod) []byte {
	p := newPatch(256)
	p.testUID(pod)
	p.setAnnotation(v1alpha1.RecyclePolicyAnnotationKey, string(v1alpha1.RecyclePolicyReplace))
	return p.bytes()
}

// NeverReset reports whether the Pod's own policy is replacement.
func NeverReset(pod *corev1.Pod) bool {
	return v1alpha1.RecyclePolicy(pod.Annotations[v1alpha1.RecyclePolicyAnnotationKey]) == v1alpha1.RecyclePolicyReplace
}

func recycleReason(pod *corev1.Pod, pool *v1alpha1.SandboxPoolSpec) RecycleReason {
	switch v1alpha1.RecyclePolicy(pod.Annotations[v1alpha1.RecyclePolicyAnnotationKey]) {
	case "", v1alpha1.RecyclePolicyAuto:
	default:
		// This includes Reuse and unknown policies, because keeping less is always allowed.
		return ReplaceByPolicy
	}
	if pod.DeletionTimestamp != nil || Finished(pod) {
		return ReplaceGone
	}
	if pause.Marked(pod) {
		// The Pod's resources differ from those of the pool's other Pods, and may still change.
		return ReplacePaused
	}
	if reason := residue(&pod.Spec); reason != Resettable {
		return reason
	}
	return imageRestarts(pod, IdleImage(pool))
}

// imageRestarts returns whether the change of image ends the tenant's container.
func imageRestarts(pod *corev1.Pod, idle string) RecycleReason {
	s := Read(pod)
	tenant, container := pod.Spec.Containers[0].Image, ContainerID(pod)
	if s.Phase == Stopping {
		if !SameImage(pod.Spec.Containers[0].Image, idle) {
			return ReplaceNotReset
		}
		tenant, container = s.RunningImage, s.ContainerID
	}
	switch {
	case idle == "" || tenant == "" || SameImage(tenant, idle):
		return ReplaceSameImage
	case container == "" || container == s.SwapFrom:
		// The swap to the tenant's image may not have begun. Then putting the idle image back restarts nothing, and it is unknown
		// whether the tenant's container ran in between.
		return ReplaceNoContainerID
	}
	return Resettable
}

// ResetDone reports whether a stopping Pod may become idle: it is still recyclable, and the kubelet reports, for the idle image,
// a running and ready container that is not the tenant's.
func ResetDone(pod *corev1.Pod, pool *v1alpha1.SandboxPoolSpec) bool {
	if PhaseOf(pod) != Stopping || !Recyclable(pod, pool).Reset || ReadyCondition(pod) == nil || !pause.Observed(pod) {
		return false
	}
	cs := mainStatus(pod)
	return runsReady(cs) && cs.ContainerID != "" &&
		cs.ContainerID != pod.Annotations[v1alpha1.SandboxContainerIDAnnotationKey] &&
		reports(cs, IdleImage(pool))
}

// Finished reports whether a Pod has finished.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
