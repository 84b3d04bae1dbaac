// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// EmbeddedSandboxTemplate is what templates and pools have in common.
type EmbeddedSandboxTemplate struct {
	// Template is the Pod template. All Pods of a pool have the same resources.
	// Its image is the idle image unless idleImage is set.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +optional
	Template corev1.PodTemplateSpec `json:"template,omitempty"`

	// IdleImage is the image of idle Pods. When empty, the image of the
	// template's first container.
	// +optional
	IdleImage string `json:"idleImage,omitempty"`

	// Runtimes lists the runtimes inside the sandbox. When empty, a default one.
	// +listType=map
	// +listMapKey=name
	// +optional
	Runtimes []SandboxRuntimeSpec `json:"runtimes,omitempty"`
}

// SandboxRuntimeSpec is a runtime inside the sandbox, by which callers drive it.
type SandboxRuntimeSpec struct {
	// Name is the runtime's type, for example e2b or swerex.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Port is where the runtime listens.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Protocol of the port: UDP, TCP or SCTP.
	// +optional
	// +kubebuilder:validation:Enum=UDP;TCP;SCTP
	// +default="TCP"
	Protocol *corev1.Protocol `json:"protocol,omitempty"`

	// Description is for people.
	// +optional
	Description string `json:"description,omitempty"`

	// LogDir is the path of the runtime's log file in the container, such as
	// /tmp/envd.log. With it the runtime's log can be read as well.
	// +optional
	LogDir string `json:"logDir,omitempty"`

	// ReadinessProbe tells when the runtime is ready.
	// +optional
	ReadinessProbe *corev1.Probe `json:"readinessProbe,omitempty"`

	// Config is the runtime's own configuration; its form depends on the type.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +optional
	Config *runtime.RawExtension `json:"config,omitempty"`
}

// SandboxReservationSpec is what the SI Scheduler needs to reserve room for
// sandbox Pods.
type SandboxReservationSpec struct {
	// PriorityClassName is the priority class of the Pods.
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// ReplicaQuota is the quota of one replica.
	ReplicaQuota corev1.ResourceList `json:"replicaQuota"`
}

// TemplateVisibility limits who sees a template. A caller sees it if any rule
// matches; without rules every caller does.
type TemplateVisibility struct {
	// Rules lists who sees the template.
	// +optional
	Rules []TemplateVisibilityRule `json:"rules,omitempty"`
}

// TemplateVisibilityRule matches a caller by team and user together; what is
// empty matches all.
type TemplateVisibilityRule struct {
	// Team that sees the template; empty for any team.
	// +optional
	Team string `json:"team,omitempty"`

	// Users that see the template; empty for any user.
	// +optional
	Users []string `json:"users,omitempty"`
}

// SandboxTemplateSpec is the desired state of a SandboxTemplate.
type SandboxTemplateSpec struct {
	EmbeddedSandboxTemplate `json:",inline"`

	// Version of the template, by semantic versioning ("v1.2.0").
	// +optional
	Version string `json:"version,omitempty"`

	// Description is for people.
	// +optional
	Description string `json:"description,omitempty"`

	// Visibility limits who sees the template. Without rules every caller does.
	// +optional
	Visibility *TemplateVisibility `json:"visibility,omitempty"`
}

// SandboxTemplateStatus is the observed state of a SandboxTemplate.
type SandboxTemplateStatus struct {
	// ObservedGeneration is as in SandboxEnvStatus.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Available (usable), Progressing (being created or updated)
	// and Degraded (not in the desired state).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SandboxTemplate is what the Pods of a kind of sandbox are made from.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=sbt
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Idle-Image",type=string,JSONPath=`.spec.idleImage`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Runtimes",type=string,JSONPath=`.spec.runtimes[*].name`,priority=1
// +kubebuilder:printcolumn:name="Description",type=string,JSONPath=`.spec.description`,priority=1
type SandboxTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state.
	// +required
	Spec SandboxTemplateSpec `json:"spec"`

	// status is the observed state.
	// +optional
	Status SandboxTemplateStatus `json:"status,omitzero"`
}

// SandboxTemplateList is a list of SandboxTemplates.
// +kubebuilder:object:root=true
type SandboxTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []SandboxTemplate `json:"items"`
}
