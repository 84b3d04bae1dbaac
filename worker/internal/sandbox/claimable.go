// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	corev1 "k8s.io/api/core/v1"
)

// Claimability is ClaimableNow, or the reason why a Pod cannot be claimed.
type Claimability string

// The results of Claimable.
const (
	ClaimableNow    Claimability = "Claimable"
	NotIdle         Claimability = "NotIdle"
	Terminating     Claimability = "Terminating"
	BeingDisrupted  Claimability = "DisruptionTarget"
	NotReady        Claimability = "NotReady"
	ImageMismatch   Claimability = "ImageMismatch"
	NodeUnknown     Claimability = "NodeUnknown"
	NodeCordoned    Claimability = "NodeCordoned"
	NodeUnready     Claimability = "NodeUnready"
	NodeTerminating Claimability = "NodeTerminating"
)

// OK reports whether the Pod can be claimed.
func (c Claimability) OK() bool { return c == ClaimableNow }

// Claimable returns whether a Pod can be claimed, given its node. A Pod whose container does not run its spec's image cannot be claimed,
// even for another image, because it is in a transition that the worker did not begin. A Pod with a sandbox is not idle, whatever its label
// says.
func Claimable(pod *corev1.Pod, node *corev1.Node) Claimability {
	switch {
	case PhaseOf(pod) != Idle:
		return NotIdle
	case pod.DeletionTimestamp != nil:
		return Terminating
	case trueCondition(pod, corev1.DisruptionTarget) != nil:
		return BeingDisrupted
	case ReadyCondition(pod) == nil:
		return NotReady
	}
	if cs := mainStatus(pod); !runsReady(cs) || cs.ContainerID == "" {
		return NotReady
	}
	if !Runs(pod, pod.Spec.Containers[0].Image) {
		return ImageMismatch
	}
	return NodeServes(node)
}

// NodeServes returns whether Pods on a node can be claimed. A nil node is unknown.
func NodeServes(node *corev1.Node) Claimability {
	switch {
	case node == nil:
		return NodeUnknown
	case node.DeletionTimestamp != nil:
		return NodeTerminating
	case node.Spec.Unschedulable:
		return NodeCordoned
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return ClaimableNow
		}
	}
	return NodeUnready
}

// ReadyCondition returns the condition Ready of a Pod if it is true, else nil.
func ReadyCondition(pod *corev1.Pod) *corev1.PodCondition { return trueCondition(pod, corev1.PodReady) }

func trueCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}
