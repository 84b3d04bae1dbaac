// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SandboxEnvMode is how an Env satisfies requests for a sandbox.
// +kubebuilder:validation:Enum=WarmPool;OnDemandJob
type SandboxEnvMode string

const (
	// SandboxEnvModeWarmPool hands out Pods of the Env's member pools.
	SandboxEnvModeWarmPool SandboxEnvMode = "WarmPool"
	// SandboxEnvModeOnDemandJob would run a job for each request. It is accepted
	// and not built: such an Env is Ready=False with the reason ModeNotSupported.
	SandboxEnvModeOnDemandJob SandboxEnvMode = "OnDemandJob"
)

// SandboxEnvTemplateRef points at a SandboxTemplate, which is cluster-scoped.
type SandboxEnvTemplateRef struct {
	// Name of the SandboxTemplate.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Version pins the Env to one version of the template. When empty, whatever
	// version the template has is used and recorded in status.
	// +optional
	Version string `json:"version,omitempty"`
}

// SandboxEnvDefaults is the shape of sandboxes whose request names none.
type SandboxEnvDefaults struct {
	// InstanceType is an entry of the catalogue of instance types. It may be
	// empty in an Env that came from a pool without one; its members then have
	// inlineResources.
	// +optional
	InstanceType string `json:"instanceType,omitempty"`

	// Multiplier scales the instance type's resources. The worker checks it
	// against the range that the instance type allows.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Multiplier int32 `json:"multiplier,omitempty"`
}

// EnvOverridesSpec replaces fields of the template in every member pool alike.
// An Env is one kind of sandbox; its pools differ only in size and in the
// metadata that plugins need.
type EnvOverridesSpec struct {
	// Image is the image of the main container (containers[0]).
	// +optional
	Image string `json:"image,omitempty"`

	// PodCreationImagePolicy is the policy of every member pool.
	// +optional
	// +kubebuilder:validation:Enum=PoolDefaultImage;IdleImage
	PodCreationImagePolicy PodCreationImagePolicy `json:"podCreationImagePolicy,omitempty"`

	// DefaultStartupTimeout holds for requests without a startupTimeout.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a duration such as 90s or 1h30m, and not negative"
	DefaultStartupTimeout *metav1.Duration `json:"defaultStartupTimeout,omitempty"`

	// DefaultIdleTimeout holds for requests without an idleTimeout.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a duration such as 90s or 1h30m, and not negative"
	DefaultIdleTimeout *metav1.Duration `json:"defaultIdleTimeout,omitempty"`
}

// SandboxEnvSpec is the desired state of a SandboxEnv.
//
// Two rules look across clusters. An autoscaling group needs a member, but only
// a request that changes autoscaling is asked for one: a user who removes members,
// and a user who writes something else later, must not be refused for a group that
// was emptied meanwhile. The members of a group have one size: the same
// instance type and multiplier, or, where one of two has no instance type, the
// same inlineResources, letter for letter. Groups that autoscaling does not
// list bind no group, so the default group costs nothing to those without one.
//
// Both compare a group's name by `in [name]`: the API server charges `==` of
// strings by their greatest length, and 32 groups × 256 clusters × 32 members
// would not fit into a rule's budget.
// +kubebuilder:validation:XValidation:fieldPath=".autoscaling",optionalOldSelf=true,message="each of autoscaling.groups needs a member: one whose config.scalingGroup is the group's name",rule="!has(self.autoscaling) || !has(self.autoscaling.groups) || (oldSelf.hasValue() && has(oldSelf.value().autoscaling) && oldSelf.value().autoscaling == self.autoscaling) || self.autoscaling.groups.all(g, has(self.clusters) && self.clusters.exists(c, has(c.members) && c.members.exists(m, has(m.config) && m.config.scalingGroup in [g.name])))"
// +kubebuilder:validation:XValidation:fieldPath=".clusters",message="members of one autoscaling group must have the same config.instanceType and config.multiplier, or identical config.inlineResources",rule=`!has(self.autoscaling) || !has(self.autoscaling.groups) || !has(self.clusters) || self.autoscaling.groups.all(g, [self.clusters.map(c, has(c.members), c.members.filter(m, has(m.config) && m.config.scalingGroup in [g.name])).filter(l, size(l) > 0)].all(ls, ls.all(l, l.all(m, [ls[0][0].config].all(f, m.config.?instanceType.orValue("") != "" && f.?instanceType.orValue("") != "" ? m.config.instanceType == f.instanceType && m.config.?multiplier.orValue(0) == f.?multiplier.orValue(0) : m.config.?inlineResources == f.?inlineResources)))))`
type SandboxEnvSpec struct {
	// TemplateRef is the one template that all member pools are made from.
	// +required
	TemplateRef SandboxEnvTemplateRef `json:"templateRef"`

	// Mode is WarmPool (Pods of member pools) or OnDemandJob (a job for each
	// request).
	// +required
	// +kubebuilder:default=WarmPool
	Mode SandboxEnvMode `json:"mode"`

	// Defaults is the instance shape for requests that name none. Recommended.
	// +optional
	Defaults *SandboxEnvDefaults `json:"defaults,omitempty"`

	// Clusters lists the members, cluster by cluster. A segment belongs to the
	// worker with that clusterID alone; all others only read it. It may be null,
	// like a segment's members.
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=clusterID
	// +kubebuilder:validation:MaxItems=256
	Clusters []EnvClusterSpec `json:"clusters,omitempty"`

	// Autoscaling configures the Env's autoscaler. Without it, or for groups
	// that are not enabled, replicas are set by hand.
	// +optional
	Autoscaling *EnvAutoscalingSpec `json:"autoscaling,omitempty"`

	// Overrides replaces fields of the template in every member pool.
	// +optional
	Overrides *EnvOverridesSpec `json:"overrides,omitempty"`
}

// SandboxEnvStatus is the observed state of a SandboxEnv.
type SandboxEnvStatus struct {
	// ObservedGeneration is the generation that the hub's catalogue has told
	// of in Catalogued, Reconciling and Stalled. Only what the catalogue takes
	// from the hub's own cluster has it.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions tell the Env's health: Ready, TemplateConsistent,
	// AutoscalingActive, Federated, Catalogued.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Clusters holds what was observed, cluster by cluster. A worker writes its
	// own segment (isLocal); the others come from the hub.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	Clusters []EnvClusterStatus `json:"clusters,omitempty"`

	// Snapshots holds the frozen pools of this cluster's members, as they were
	// rendered and admitted. The worker writes it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Snapshots []EnvMemberSnapshot `json:"snapshots,omitempty"`

	// ScalingGroups sums each scaling group over all members of all clusters
	// that are known here.
	// +optional
	// +listType=map
	// +listMapKey=name
	ScalingGroups []EnvScalingGroupStatus `json:"scalingGroups,omitempty"`

	// MemberCount counts the observed member pools of all segments. Printer
	// columns cannot look into nested lists, so the sums are fields.
	// +optional
	MemberCount int32 `json:"memberCount,omitempty"`

	// DesiredReplicas is the sum over all observed members.
	// +optional
	DesiredReplicas int32 `json:"desiredReplicas,omitempty"`
	// RunningReplicas is the sum over all observed members.
	// +optional
	RunningReplicas int32 `json:"runningReplicas,omitempty"`
	// IdleReplicas is the sum over all observed members.
	// +optional
	IdleReplicas int32 `json:"idleReplicas,omitempty"`
}

// SandboxEnv is an environment that sandboxes are claimed from: one template,
// and the pools in each cluster that keep Pods of it warm. The same name in the
// same namespace of several clusters is one federated Env.
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: it becomes a label of the Env's pools"
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sbe
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.memberCount`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idleReplicas`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.runningReplicas`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desiredReplicas`
// +kubebuilder:printcolumn:name="Template",type=string,JSONPath=`.spec.templateRef.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Autoscaling",type=string,JSONPath=`.status.conditions[?(@.type=="AutoscalingActive")].status`,priority=1
// +kubebuilder:printcolumn:name="Federated",type=string,JSONPath=`.status.conditions[?(@.type=="Federated")].status`,priority=1
type SandboxEnv struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state.
	// +required
	Spec SandboxEnvSpec `json:"spec"`

	// status is the observed state.
	// +optional
	Status SandboxEnvStatus `json:"status,omitzero"`
}

// SandboxEnvList is a list of SandboxEnvs.
// +kubebuilder:object:root=true
type SandboxEnvList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []SandboxEnv `json:"items"`
}
