// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EnvClusterSpec is the segment of an Env's spec that belongs to one cluster.
type EnvClusterSpec struct {
	// ClusterID names the cluster. A worker reads and changes only the segment
	// with its own id. Other segments are as they were last applied to this
	// object; what they are in their clusters is in status.clusters.
	// +required
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	ClusterID string `json:"clusterID"`

	// Members lists the pools that this cluster contributes. It may be null:
	// server-side apply makes a list null, not absent, when it takes away its
	// last item and others own fields of that item, as the worker does.
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Members []EnvClusterMember `json:"members,omitempty"`
}

// EnvClusterMember is one SandboxPool of an Env.
//
// Config is what a user asked for. The snapshot of the pool that was rendered
// and admitted from it, once, is in status.snapshots, where a manifest that is
// applied again does not touch it; from then on the worker stamps the snapshot
// onto the live pool and never admits again, so that the effects of admission
// (reservations, scheduling labels) outlive the pool. A newer template does not
// change a snapshot.
//
// A manifest may state a snapshot itself, in metadata and spec: one that was
// exported from another cluster, or that an earlier release wrote here. It then
// goes before the one in status.snapshots, which follows it.
type EnvClusterMember struct {
	// Name is the name of the SandboxPool, in the Env's namespace.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// Metadata is the labels and annotations of a snapshot that the manifest
	// states.
	// +optional
	Metadata MemberMetadata `json:"metadata,omitempty"`

	// Spec is the pool spec of a snapshot that the manifest states, or its
	// replicas alone. Replicas that are stated here are where the API and the
	// autoscaler state how large the pool should be; those that are not are in
	// status.snapshots. The Env reconciler carries them to the live pool.
	// +optional
	Spec SandboxPoolSpec `json:"spec,omitempty"`

	// Config is what the user asked for; no plugin writes it.
	// +optional
	Config EnvClusterMemberConfig `json:"config,omitempty"`
}

// UnmarshalJSON keeps apart a spec that was left out and one of 0 replicas: the
// latter has an image policy. The schema has no default for it here; because it
// would make a list that a manifest does not have, and so a difference for every
// tool that compares lists whole.
func (m *EnvClusterMember) UnmarshalJSON(content []byte) error {
	type plain EnvClusterMember
	read := struct {
		*plain
		Spec *SandboxPoolSpec `json:"spec"`
	}{plain: (*plain)(m)}
	if err := json.Unmarshal(content, &read); err != nil {
		return err
	}
	m.Spec = SandboxPoolSpec{}
	if read.Spec != nil {
		m.Spec = *read.Spec
		if m.Spec.PodCreationImagePolicy == "" {
			m.Spec.PodCreationImagePolicy = PodCreationImagePolicyIdleImage
		}
	}
	return nil
}

// StatesReplicas reports whether a manifest, or the autoscaler in its place,
// states the member's replicas in its spec.
func (m *EnvClusterMember) StatesReplicas() bool {
	return m.Spec.Replicas != 0 || m.Spec.PodCreationImagePolicy != ""
}

// EnvMemberSnapshot is the frozen pool of one member of this cluster: what the
// worker stamps onto the live pool.
type EnvMemberSnapshot struct {
	// ClusterID is the member's cluster.
	// +required
	// +kubebuilder:validation:MaxLength=30
	ClusterID string `json:"clusterID"`

	// Name is the member's.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Metadata is the labels and annotations of the pool after admission.
	// +optional
	Metadata MemberMetadata `json:"metadata,omitempty"`

	// Spec is the pool's spec after admission. Its replicas are the member's
	// where its own spec does not state them, and follow it where it does.
	// +required
	Spec SandboxPoolSpec `json:"spec"`
}

// MemberMetadata is the part of a pool's metadata that a snapshot keeps.
// Finalizers are the pool reconciler's, everything else the server's. It is a
// type of its own because an embedded ObjectMeta gets a schema without
// properties, and the API server would then prune labels and annotations.
type MemberMetadata struct {
	// Labels of the pool after admission.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the pool after admission.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// EnvClusterMemberConfig is what a user declares about one member.
// +kubebuilder:validation:XValidation:rule=`self.?instanceType.orValue("") == "" || self.?multiplier.orValue(0) > 0`,fieldPath=".multiplier",reason=FieldValueRequired,message="instanceType requires a multiplier of at least 1"
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",fieldPath=".minReplicas",message="minReplicas must not be greater than maxReplicas"
type EnvClusterMemberConfig struct {
	// Labels go onto the pool before admission, where plugins read them (the
	// quota to draw from, for instance). What plugins add is in the member's
	// metadata, not here.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations go the same way as labels.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// InstanceType is an entry of the catalogue of instance types. Where both
	// are set it wins over inlineResources.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InstanceType string `json:"instanceType,omitempty"`

	// Multiplier scales the instance type's resources and is required with one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Multiplier int32 `json:"multiplier,omitempty"`

	// InlineResources sizes the Pods of a member without an instance type, and
	// keeps the size of one that has both on record. New Envs should prefer
	// instanceType and multiplier.
	// +optional
	InlineResources *corev1.ResourceRequirements `json:"inlineResources,omitempty"`

	// ScalingGroup is the autoscaling group of this member; "" keeps it out of
	// autoscaling. All members of a group have the same resources, by instance
	// type and multiplier or by inlineResources.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	// +kubebuilder:default=default
	ScalingGroup string `json:"scalingGroup,omitempty"`

	// MinReplicas is the floor that the autoscaler keeps for this member. Unset
	// or 0 leaves only the group's.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is the ceiling that the autoscaler keeps for this member.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// Priority is the preference for routing and scaling; lower wins. Routing
	// compares it among members that can serve equally soon.
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// ScaleUpPriority replaces priority in the order of scale-up: the lowest
	// grows first, then by (clusterID, name).
	// +optional
	ScaleUpPriority *int32 `json:"scaleUpPriority,omitempty"`

	// ScaleDownPriority replaces priority in the order of scale-down: the
	// highest shrinks first, then the one with the oldest idle Pod, then by
	// name. So one priority makes a member grow first and shrink last.
	// +optional
	ScaleDownPriority *int32 `json:"scaleDownPriority,omitempty"`
}

// EffectiveScaleUpPriority is ScaleUpPriority, or else Priority. The lowest
// member of a scaling group grows first.
func (c EnvClusterMemberConfig) EffectiveScaleUpPriority() int32 {
	if c.ScaleUpPriority != nil {
		return *c.ScaleUpPriority
	}
	return c.Priority
}

// EffectiveScaleDownPriority is ScaleDownPriority, or else Priority. The
// highest member of a scaling group shrinks first, against the direction of
// scale-up, so that the member preferred by Priority is also the one retained.
func (c EnvClusterMemberConfig) EffectiveScaleDownPriority() int32 {
	if c.ScaleDownPriority != nil {
		return *c.ScaleDownPriority
	}
	return c.Priority
}

// EnvClusterStatus is the segment of an Env's status that belongs to one
// cluster.
type EnvClusterStatus struct {
	// ClusterID names the cluster.
	// +required
	ClusterID string `json:"clusterID"`

	// IsLocal is true in the cluster whose pools these are.
	// +optional
	IsLocal bool `json:"isLocal,omitempty"`

	// ObservedMembers lists what was seen of each member.
	// +optional
	// +listType=map
	// +listMapKey=name
	ObservedMembers []EnvObservedMember `json:"observedMembers,omitempty"`

	// LastSnapshotTime is when the segment was last updated: written, if it is
	// local, else received from the hub.
	// +optional
	LastSnapshotTime *metav1.Time `json:"lastSnapshotTime,omitempty"`
}

// ObservedMemberState tells whether a member can serve.
// +kubebuilder:validation:Enum=Active;Saturated;Missing;Inconsistent
type ObservedMemberState string

const (
	// ObservedMemberStateActive: the pool is there and takes part.
	ObservedMemberStateActive ObservedMemberState = "Active"
	// ObservedMemberStateSaturated: the pool cannot grow, because it is at its
	// maxReplicas or was refused room. It still serves what is idle.
	ObservedMemberStateSaturated ObservedMemberState = "Saturated"
	// ObservedMemberStateMissing: the pool is not in the cluster.
	ObservedMemberStateMissing ObservedMemberState = "Missing"
	// ObservedMemberStateInconsistent: the pool's template or instance type is
	// not the one that the Env asks for.
	ObservedMemberStateInconsistent ObservedMemberState = "Inconsistent"
)

// EnvObservedMember is what was seen of one member.
type EnvObservedMember struct {
	// Name is the member's name.
	// +required
	Name string `json:"name"`

	// InstanceType is repeated from the spec.
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// Multiplier is repeated from the spec.
	// +optional
	Multiplier int32 `json:"multiplier,omitempty"`

	// ScalingGroup and Priority are those of the cluster that has the member.
	// They are set in other clusters' segments only: what spec.clusters of this
	// object says of such a member may be older.
	// +optional
	ScalingGroup string `json:"scalingGroup,omitempty"`
	// Priority: see ScalingGroup.
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// EffectiveResources is what each Pod gets: the instance type's resources
	// times the multiplier, or inlineResources.
	// +optional
	EffectiveResources *corev1.ResourceRequirements `json:"effectiveResources,omitempty"`

	// State tells whether the member can serve.
	// +optional
	State ObservedMemberState `json:"state,omitempty"`

	// IdleCount mirrors the pool's idle Pods.
	// +optional
	IdleCount int32 `json:"idleCount,omitempty"`
	// RunningCount mirrors the pool's running Pods.
	// +optional
	RunningCount int32 `json:"runningCount,omitempty"`

	// DesiredReplicas is the number of replicas last asked of the pool.
	// +optional
	DesiredReplicas int32 `json:"desiredReplicas,omitempty"`
	// CurrentReplicas is the number last seen in the pool's spec.
	// +optional
	CurrentReplicas int32 `json:"currentReplicas,omitempty"`

	// PendingRequests mirrors the length of the pool's claim queue.
	// +optional
	PendingRequests int32 `json:"pendingRequests,omitempty"`

	// SaturatedUntil is until when the member cannot grow; it mirrors what the
	// pool's autoscaler knows. Routers keep such a member for last instead of
	// leaving it out. A member at its maxReplicas is Saturated without a time.
	// +optional
	SaturatedUntil *metav1.Time `json:"saturatedUntil,omitempty"`
}
