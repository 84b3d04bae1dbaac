// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PoolScaleUpMode is how far one scale-up decision goes.
// +kubebuilder:validation:Enum=Conservative;Default;Aggressive
type PoolScaleUpMode string

const (
	// PoolScaleUpModeConservative adds one Pod.
	PoolScaleUpModeConservative PoolScaleUpMode = "Conservative"
	// PoolScaleUpModeDefault adds max(1, ceil(currentReplicas/2)) Pods.
	PoolScaleUpModeDefault PoolScaleUpMode = "Default"
	// PoolScaleUpModeAggressive doubles the replicas, up to maxReplicas.
	PoolScaleUpModeAggressive PoolScaleUpMode = "Aggressive"
)

// PoolScaleUpPolicy controls scale-up. A field that is left out gets its
// default in the stored object, so that what is in force can be read there.
type PoolScaleUpPolicy struct {
	// Mode is the step of one decision. Conservative adds 1, Default adds
	// max(1, ceil(currentReplicas/2)), Aggressive goes to
	// min(currentReplicas*2, maxReplicas).
	// +optional
	// +kubebuilder:validation:Enum=Conservative;Default;Aggressive
	// +kubebuilder:default=Default
	Mode PoolScaleUpMode `json:"mode,omitempty"`

	// CooldownSeconds must pass between two scale-ups.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=30
	CooldownSeconds int32 `json:"cooldownSeconds,omitempty"`

	// IdleThresholdSeconds is how long a pool has had no idle Pod before it
	// grows without being asked. 0 turns that off.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=30
	IdleThresholdSeconds int32 `json:"idleThresholdSeconds,omitempty"`

	// IdleZeroQuietWindowSeconds holds back the growth of
	// idleThresholdSeconds when the pool's latest create request is older than
	// this. A request that waits is never held back. 0 turns the window off.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=300
	IdleZeroQuietWindowSeconds int32 `json:"idleZeroQuietWindowSeconds,omitempty"`

	// SaturationCooldownSeconds is how long a member counts as saturated after
	// a probe that found too little room: it is not probed again, and the
	// router prefers others.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=60
	SaturationCooldownSeconds int32 `json:"saturationCooldownSeconds,omitempty"`
}

// PoolScaleDownPolicy controls scale-down. Defaults are stored, as in
// PoolScaleUpPolicy.
type PoolScaleDownPolicy struct {
	// IdleTimeoutSeconds is how long a Pod is idle before it may be removed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=300
	IdleTimeoutSeconds int32 `json:"idleTimeoutSeconds,omitempty"`

	// StabilizationSeconds must pass between two scale-downs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=60
	StabilizationSeconds int32 `json:"stabilizationSeconds,omitempty"`

	// ProtectionWindowSeconds is how long a Pod that is marked for removal can
	// still be claimed, which keeps it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=10
	ProtectionWindowSeconds int32 `json:"protectionWindowSeconds,omitempty"`
}

// EnvAutoscalingGroup is a set of members, those whose scalingGroup is Name,
// that is scaled as one.
// +kubebuilder:validation:XValidation:rule="self.scaleUpPolicy.mode != 'Aggressive' || has(self.maxReplicas)",fieldPath=".maxReplicas",reason=FieldValueRequired,message="Aggressive scaleUpPolicy.mode requires maxReplicas to be set on the group: it doubles the replicas each cooldown and would grow without bound"
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",fieldPath=".minReplicas",message="minReplicas must not be greater than maxReplicas"
type EnvAutoscalingGroup struct {
	// Name is the scalingGroup of at least one member; a group without members
	// is refused.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Name string `json:"name"`

	// Enabled turns the autoscaler on for this group. While it is off, the
	// members' replicas are set by hand.
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`

	// MinReplicas is the floor of the group's replicas together.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=0
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is the ceiling of the group's replicas together. Without it
	// the group grows until its members' ceilings, a quota or the cluster stops
	// it; mode Aggressive requires it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// ScaleUpPolicy controls scale-up.
	// +optional
	// +kubebuilder:default={}
	ScaleUpPolicy PoolScaleUpPolicy `json:"scaleUpPolicy"`

	// ScaleDownPolicy controls scale-down.
	// +optional
	// +kubebuilder:default={}
	ScaleDownPolicy PoolScaleDownPolicy `json:"scaleDownPolicy"`
}

// EnvAutoscalingSpec configures the Env's autoscaler. Each group has a switch
// of its own.
type EnvAutoscalingSpec struct {
	// Groups lists the autoscaling groups.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Groups []EnvAutoscalingGroup `json:"groups,omitempty"`
}

// EnvScalingGroupStatus sums one scaling group over all members. What the
// autoscaler remembers about a pool is in that pool's status.autoscaling.
type EnvScalingGroupStatus struct {
	// Name is the group's name.
	// +required
	Name string `json:"name"`

	// TotalIdle is the sum of the members' idle Pods.
	// +optional
	TotalIdle int32 `json:"totalIdle,omitempty"`
	// TotalRunning is the sum of the members' running Pods.
	// +optional
	TotalRunning int32 `json:"totalRunning,omitempty"`
	// TotalDesired is the sum of the members' desired replicas.
	// +optional
	TotalDesired int32 `json:"totalDesired,omitempty"`
}

// PoolScaleUpAttemptResult is the outcome of a scale-up attempt. Together with
// its time and the group's saturationCooldownSeconds it tells whether a pool is
// saturated, so that no end time has to be stored.
// +kubebuilder:validation:Enum=Enough;JustRight;Insufficient;Failed
type PoolScaleUpAttemptResult string

const (
	// PoolScaleUpAttemptEnough: the whole target was admitted. Only the success
	// cooldown holds back the next attempt.
	PoolScaleUpAttemptEnough PoolScaleUpAttemptResult = "Enough"
	// PoolScaleUpAttemptJustRight: some of the target was admitted, so a
	// ceiling is known. Saturated until the cooldown is over. Reserved: partial
	// admission is reported as Insufficient for now.
	PoolScaleUpAttemptJustRight PoolScaleUpAttemptResult = "JustRight"
	// PoolScaleUpAttemptInsufficient: there is no room for the target. Saturated
	// until the cooldown is over.
	PoolScaleUpAttemptInsufficient PoolScaleUpAttemptResult = "Insufficient"
	// PoolScaleUpAttemptFailed: the probe found the spec invalid or broke.
	// Saturated like Insufficient; scaleUpErrorMessage says why.
	PoolScaleUpAttemptFailed PoolScaleUpAttemptResult = "Failed"
)

// PoolAutoScalingStatus is what the autoscaler remembers about one pool. It has
// one writer, the autoscaling step of the pool's reconciler; the Env reconciler
// never writes it.
type PoolAutoScalingStatus struct {
	// LastScaleUpTime is when replicas last went up; the success cooldown
	// (scaleUpPolicy.cooldownSeconds) counts from it.
	// +optional
	LastScaleUpTime *metav1.Time `json:"lastScaleUpTime,omitempty"`

	// LastScaleDownTime is when replicas last went down;
	// scaleDownPolicy.stabilizationSeconds counts from it.
	// +optional
	LastScaleDownTime *metav1.Time `json:"lastScaleDownTime,omitempty"`

	// IdleZeroSince is when the pool last ran out of idle Pods; it is cleared as
	// soon as one is idle. scaleUpPolicy.idleThresholdSeconds counts from it.
	// +optional
	IdleZeroSince *metav1.Time `json:"idleZeroSince,omitempty"`

	// LastScaleUpAttemptTime is when a scale-up was last tried, whatever came of
	// it. After any result but Enough the pool is saturated for
	// saturationCooldownSeconds from then.
	// +optional
	LastScaleUpAttemptTime *metav1.Time `json:"lastScaleUpAttemptTime,omitempty"`

	// LastScaleUpAttemptResult is the outcome of that attempt; empty before the
	// first.
	// +optional
	LastScaleUpAttemptResult PoolScaleUpAttemptResult `json:"lastScaleUpAttemptResult,omitempty"`

	// ScaleUpErrorMessage says in one line why the last result was not Enough.
	// +optional
	ScaleUpErrorMessage string `json:"scaleUpErrorMessage,omitempty"`

	// ObservedGeneration is the pool's generation when this was last written.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
