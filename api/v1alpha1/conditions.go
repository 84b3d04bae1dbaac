// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a SandboxEnv.
const (
	// SandboxEnvConditionReady: all members can serve. A saturated member still
	// can; one that is missing or inconsistent cannot.
	SandboxEnvConditionReady = "Ready"
	// SandboxEnvConditionTemplateConsistent: every member pool was made from the
	// same template, at the same version if it is pinned.
	SandboxEnvConditionTemplateConsistent = "TemplateConsistent"
	// SandboxEnvConditionAutoscalingActive: the autoscaler is configured, on,
	// and not held up.
	SandboxEnvConditionAutoscalingActive = "AutoscalingActive"
	// SandboxEnvConditionFederated: the foreign segments here are what the hub
	// knows, and complete, and each cluster that the Env has members of serves
	// it. The message names the clusters concerned.
	SandboxEnvConditionFederated = "Federated"
	// SandboxEnvConditionCatalogued: the hub's catalogue has the Env, and its
	// part for this cluster is applied.
	SandboxEnvConditionCatalogued = "Catalogued"
)

// Condition types of what the catalogue takes from the hub's own cluster, by
// which Argo CD and Flux show health (kstatus). They are absent, not False.
const (
	// CatalogConditionReconciling: a cluster is yet to get it, or a rollout goes
	// on.
	CatalogConditionReconciling = "Reconciling"
	// CatalogConditionStalled: nothing goes on until a person changes something.
	CatalogConditionStalled = "Stalled"
)

// Condition types of a SandboxPool.
const (
	// SandboxPoolConditionAvailable: idle Pods can take requests.
	SandboxPoolConditionAvailable = "Available"
	// SandboxPoolConditionScaling: the pool grows or shrinks.
	SandboxPoolConditionScaling = "Scaling"
	// SandboxPoolConditionDegraded: Pods are unhealthy or failed.
	SandboxPoolConditionDegraded = "Degraded"
	// SandboxPoolConditionNetworkPolicyApplied: the pool's NetworkPolicy is what
	// its annotation egress asks for. It is set where the worker makes them.
	SandboxPoolConditionNetworkPolicyApplied = "NetworkPolicyApplied"
)

// ConditionReason is the reason of a condition, or of the event that tells of
// the same thing.
type ConditionReason string

// Reasons that any condition or event may have.
const (
	// ReasonReconciling: work is going on; the condition is not decided yet.
	ReasonReconciling ConditionReason = "Reconciling"
	// ReasonReconciled: nothing is left to do.
	ReasonReconciled ConditionReason = "Reconciled"
	// ReasonValidated: the object passed the checks that the schema cannot make.
	ReasonValidated ConditionReason = "Validated"
	// ReasonError: the last attempt failed; the message has the error.
	ReasonError ConditionReason = "Error"
	// ReasonPoolCreated: a member's pool was created.
	ReasonPoolCreated ConditionReason = "PoolCreated"
	// ReasonPoolUpdated: a member's pool follows a change of the Env.
	ReasonPoolUpdated ConditionReason = "PoolUpdated"
	// ReasonPoolDrifted: a member's pool was changed by hand and was repaired.
	ReasonPoolDrifted ConditionReason = "PoolDrifted"
	// ReasonOrphansCleaned: pools without a member were removed.
	ReasonOrphansCleaned ConditionReason = "OrphansCleaned"
)

// Reasons of Ready, next to Reconciling and Error.
const (
	ReasonMembersReady        ConditionReason = "MembersReady"
	ReasonNoMembers           ConditionReason = "NoMembers"
	ReasonMembersMissing      ConditionReason = "MembersMissing"
	ReasonMembersInconsistent ConditionReason = "MembersInconsistent"
	// ReasonMembersInvalid: members cannot be made from what the Env, its
	// template and the instance types are now.
	ReasonMembersInvalid ConditionReason = "MembersInvalid"
	// ReasonModeNotSupported: the mode is OnDemandJob, which is not built.
	ReasonModeNotSupported ConditionReason = "ModeNotSupported"
)

// Reasons of TemplateConsistent. TemplateNotFound is also one of Ready.
const (
	ReasonTemplateMatches  ConditionReason = "TemplateMatches"
	ReasonTemplateNotFound ConditionReason = "TemplateNotFound"
	// ReasonTemplateNotVisible: the template's spec.visibility leaves the
	// Namespace's team and user out. It is also one of Ready.
	ReasonTemplateNotVisible      ConditionReason = "TemplateNotVisible"
	ReasonTemplateMismatch        ConditionReason = "TemplateMismatch"
	ReasonTemplateVersionMismatch ConditionReason = "TemplateVersionMismatch"
	// ReasonTemplateOutdated: the template or the overrides have changed since
	// the pools were made. They go on from their snapshots.
	ReasonTemplateOutdated ConditionReason = "TemplateOutdated"
	// ReasonInstanceTypeChanged: the instance type of a member is another one
	// than its pool was made with, or is gone. The pool goes on as it is.
	ReasonInstanceTypeChanged ConditionReason = "InstanceTypeChanged"
	// ReasonMembersUnequal: members of one scaling group have different
	// resources, of what they were made with at different times.
	ReasonMembersUnequal ConditionReason = "MembersUnequal"
)

// Reasons of a pool's NetworkPolicyApplied.
const (
	ReasonNetworkPolicyApplied ConditionReason = "NetworkPolicyApplied"
	// ReasonNetworkPolicyPending: there is none yet, and the pool's first Pods
	// wait for it.
	ReasonNetworkPolicyPending ConditionReason = "NetworkPolicyPending"
	// ReasonEgressInvalid: a part of the annotation opens nothing; the message
	// says which, and what is valid.
	ReasonEgressInvalid ConditionReason = "EgressInvalid"
)

// Reasons of AutoscalingActive.
const (
	ReasonAutoscalerRunning ConditionReason = "AutoscalerRunning"
	// ReasonAutoscalerNotRunning: groups are enabled, but this worker runs no
	// autoscaler.
	ReasonAutoscalerNotRunning ConditionReason = "AutoscalerNotRunning"
	// ReasonAutoscalingNotConfigured: the Env has no autoscaling groups.
	ReasonAutoscalingNotConfigured ConditionReason = "AutoscalingNotConfigured"
	// ReasonAutoscalingDisabled: the Env has groups, and none is enabled.
	ReasonAutoscalingDisabled ConditionReason = "AutoscalingDisabled"
	// ReasonAutoscalingMisconfigured: a group cannot be scaled as it is
	// configured.
	ReasonAutoscalingMisconfigured ConditionReason = "AutoscalingMisconfigured"
	// ReasonReplicasContested: another writer keeps setting a member's replicas
	// back, so the autoscaler has stopped.
	ReasonReplicasContested ConditionReason = "ReplicasContested"
)

// Reasons of Federated.
const (
	ReasonInSync ConditionReason = "InSync"
	// ReasonHubUnreachable: no hub is connected; foreign segments are old.
	ReasonHubUnreachable ConditionReason = "HubUnreachable"
	// ReasonClustersStale: the hub has not heard from these clusters lately.
	ReasonClustersStale ConditionReason = "ClustersStale"
	// ReasonClusterMissing: the Env has members of clusters that are not
	// registered at the hub.
	ReasonClusterMissing ConditionReason = "ClusterMissing"
	// ReasonEnvMissing: the Env has members of clusters that have no such Env.
	ReasonEnvMissing ConditionReason = "EnvMissing"
	// ReasonTooLarge: the foreign segments did not fit into the object and were
	// collapsed into group totals.
	ReasonTooLarge ConditionReason = "TooLarge"
)

// Reasons of a SandboxPool's conditions. They are untyped, so that code which
// puts them straight into a metav1.Condition keeps compiling.
const (
	// SandboxPoolReasonIdlePodsAvailable and its opposite are of Available.
	SandboxPoolReasonIdlePodsAvailable   = "IdlePodsAvailable"
	SandboxPoolReasonNoIdlePodsAvailable = "NoIdlePodsAvailable"

	// SandboxPoolReasonScalingUp and the next two are of Scaling.
	SandboxPoolReasonScalingUp     = "ScalingUp"
	SandboxPoolReasonScalingDown   = "ScalingDown"
	SandboxPoolReasonReplicasReady = "ReplicasReady"

	// SandboxPoolReasonAllPodsHealthy and the rest are of Degraded: idle Pods
	// that are not ready, failed Pods, or both.
	SandboxPoolReasonAllPodsHealthy     = "AllPodsHealthy"
	SandboxPoolReasonUnhealthyIdlePods  = "UnhealthyIdlePods"
	SandboxPoolReasonFailedPodsPresent  = "FailedPodsPresent"
	SandboxPoolReasonUnhealthyAndFailed = "UnhealthyAndFailedPods"
)
