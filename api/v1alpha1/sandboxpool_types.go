// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodCreationImagePolicy is which image a new Pod of a pool starts with.
// +kubebuilder:validation:Enum=PoolDefaultImage;IdleImage
type PodCreationImagePolicy string

const (
	// PodCreationImagePolicyPoolDefaultImage keeps the template's image, so that
	// a claim for that image needs no swap.
	PodCreationImagePolicyPoolDefaultImage PodCreationImagePolicy = "PoolDefaultImage"
	// PodCreationImagePolicyIdleImage puts idleImage into the first container,
	// so that Pods become idle sooner.
	PodCreationImagePolicyIdleImage PodCreationImagePolicy = "IdleImage"
)

// SandboxPoolSpec is the desired state of a SandboxPool.
type SandboxPoolSpec struct {
	// Replicas is how many Pods the pool should have, whatever phase they are
	// in. The owning Env sets it; in a pool without an Env an operator does.
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// TemplateName is the SandboxTemplate whose fields are copied when the pool
	// is created. Fields given here go before the template's.
	// +optional
	TemplateName string `json:"templateName,omitempty"`

	// DefaultStartupTimeout holds for requests without a startupTimeout, and is
	// the longest that a Pod may be starting before it is deleted. Unset, only a
	// Pod with a startup timeout of its own is deleted, and requests without one
	// get 2 minutes.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a duration such as 90s or 1h30m, and not negative"
	DefaultStartupTimeout *metav1.Duration `json:"defaultStartupTimeout,omitempty"`

	// DefaultIdleTimeout holds for requests without an idleTimeout. Unset, such
	// a sandbox runs until it is released.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a duration such as 90s or 1h30m, and not negative"
	DefaultIdleTimeout *metav1.Duration `json:"defaultIdleTimeout,omitempty"`

	// PodCreationImagePolicy is which image new Pods start with:
	// PoolDefaultImage the template's, IdleImage spec.idleImage.
	// +optional
	// +kubebuilder:validation:Enum=PoolDefaultImage;IdleImage
	// +kubebuilder:default=IdleImage
	PodCreationImagePolicy PodCreationImagePolicy `json:"podCreationImagePolicy,omitempty"`

	EmbeddedSandboxTemplate `json:",inline"`
}

// SandboxPoolPhase sums up a pool in a word.
// +kubebuilder:validation:Enum=Pending;Ready;ScalingUp;ScalingDown;Degraded;Terminating
type SandboxPoolPhase string

const (
	// SandboxPoolPhasePending: replicas is 0 and there is no Pod.
	SandboxPoolPhasePending SandboxPoolPhase = "Pending"
	// SandboxPoolPhaseReady: all Pods are there and healthy.
	SandboxPoolPhaseReady SandboxPoolPhase = "Ready"
	// SandboxPoolPhaseScalingUp: fewer Pods than replicas.
	SandboxPoolPhaseScalingUp SandboxPoolPhase = "ScalingUp"
	// SandboxPoolPhaseScalingDown: more Pods than replicas. It lasts for as long
	// as sandboxes run, since they are not deleted to scale down.
	SandboxPoolPhaseScalingDown SandboxPoolPhase = "ScalingDown"
	// SandboxPoolPhaseDegraded: as many Pods as replicas, but idle ones are not
	// ready or some have failed.
	SandboxPoolPhaseDegraded SandboxPoolPhase = "Degraded"
	// SandboxPoolPhaseTerminating: the pool is being deleted.
	SandboxPoolPhaseTerminating SandboxPoolPhase = "Terminating"
)

// SandboxPoolStatus is the observed state of a SandboxPool.
type SandboxPoolStatus struct {
	// Phase sums up the pool. The first of these that holds: Terminating (being
	// deleted), Pending (replicas 0, no Pod), ScalingUp (fewer Pods than
	// replicas), ScalingDown (more), Degraded (unavailableIdleReplicas or
	// failedReplicas above 0), Ready.
	// +optional
	Phase SandboxPoolPhase `json:"phase,omitempty"`

	// IdleReplicas counts idle Pods, those that are not ready included.
	// +optional
	IdleReplicas int32 `json:"idleReplicas,omitempty"`

	// UnavailableIdleReplicas counts the idle Pods that are not ready (Pending,
	// CrashLoopBackOff, ErrImagePull, …) and cannot serve. Above 0 the pool is
	// Degraded.
	// +optional
	UnavailableIdleReplicas int32 `json:"unavailableIdleReplicas,omitempty"`

	// RunningReplicas counts running Pods.
	// +optional
	RunningReplicas int32 `json:"runningReplicas,omitempty"`

	// StartingReplicas counts Pods on their way from idle to running.
	// +optional
	StartingReplicas int32 `json:"startingReplicas,omitempty"`

	// StoppingReplicas counts Pods on their way from running to idle.
	// +optional
	StoppingReplicas int32 `json:"stoppingReplicas,omitempty"`

	// FailedReplicas counts failed Pods.
	// +optional
	FailedReplicas int32 `json:"failedReplicas,omitempty"`

	// PendingRequests is the length of the claim queue, for people: written
	// about every 3 s when it changed by a fifth or to or from 0. Decisions use
	// the queue itself.
	// +optional
	PendingRequests int32 `json:"pendingRequests,omitempty"`

	// Selector is the label selector of the pool's Pods as a string. It is
	// deprecated and kept for the scale subresource; read labelSelector or
	// phaseSelectors instead.
	// +optional
	Selector string `json:"selector,omitempty"`

	// LabelSelector is the same selector, structured.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`

	// PhaseSelectors are selectors for `kubectl get pods -l`, by phase: all,
	// idle, running, starting, stopping, failed.
	// +optional
	PhaseSelectors map[string]string `json:"phaseSelectors,omitempty"`

	// Conditions are Available (idle Pods can take requests), Scaling (growing
	// or shrinking) and Degraded (unavailable idle or failed Pods).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// AutoScaling is what the autoscaler remembers; unset while it is off for
	// this pool's group.
	// +optional
	AutoScaling *PoolAutoScalingStatus `json:"autoscaling,omitempty"`
}

// SandboxPool keeps a number of Pods warm and hands them out as sandboxes.
//
// The scale subresource needs a status field for the current size, and there is
// none for the total. idleReplicas is the count that scaling moves, as Pods in
// use are never ended for it. It does not mislead an HPA: that starts from
// spec.replicas, and uses this count only for whether an average per Pod is
// near enough to its target to leave things alone.
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: it becomes a label of the pool's Pods"
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.idleReplicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=sbp
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idleReplicas`
// +kubebuilder:printcolumn:name="Unavailable",type=integer,JSONPath=`.status.unavailableIdleReplicas`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.runningReplicas`
// +kubebuilder:printcolumn:name="Env",type=string,JSONPath=`.metadata.labels.agentbox\.navix\.sh/env`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Starting",type=integer,JSONPath=`.status.startingReplicas`,priority=1
// +kubebuilder:printcolumn:name="Stopping",type=integer,JSONPath=`.status.stoppingReplicas`,priority=1
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failedReplicas`,priority=1
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.pendingRequests`,priority=1
// +kubebuilder:printcolumn:name="Template",type=string,JSONPath=`.spec.templateName`,priority=1
type SandboxPool struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state.
	// +required
	Spec SandboxPoolSpec `json:"spec"`

	// status is the observed state.
	// +optional
	Status SandboxPoolStatus `json:"status,omitzero"`
}

// SandboxPoolList is a list of SandboxPools.
// +kubebuilder:object:root=true
type SandboxPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []SandboxPool `json:"items"`
}
