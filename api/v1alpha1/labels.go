// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Labels of Pods and pools. Their values are selected on, so they are bounded
// by the label grammar; what a user may choose freely goes into an annotation,
// hashed into a label if it has to be looked up.
const (
	// SandboxPoolLabelKey names the pool that owns the Pod.
	SandboxPoolLabelKey = "agentbox.navix.sh/sandbox-pool"
	// SandboxPhaseLabelKey holds the Pod's place in the sandbox life cycle, one
	// of the SandboxPhase values.
	SandboxPhaseLabelKey = "agentbox.navix.sh/sandbox-phase"
	// SandboxIDLabelKey holds the sandbox id while the Pod is claimed.
	SandboxIDLabelKey = "agentbox.navix.sh/sandbox-id"
	// ManagedByLabelKey names the component that owns the object.
	ManagedByLabelKey = "agentbox.navix.sh/managed-by"
	// ManagedBySandboxAPIServer is the value of ManagedByLabelKey on what Atoll
	// creates.
	ManagedBySandboxAPIServer = "sandbox-api-server"

	// ClaimKeyHashLabelKey holds the first 32 hex digits of the SHA-256 over
	// team, NUL, namespace, NUL, claim key. It is how a new leader finds what a
	// key already holds; the key itself is in ClaimKeyAnnotationKey.
	ClaimKeyHashLabelKey = "agentbox.navix.sh/claim-key-hash"

	// LabelTeam and LabelUser attribute the object to a tenant for the SI
	// Scheduler. A Pod has them as labels, hashed, and as annotations with the
	// names.
	LabelTeam = "scheduling.navix.sh/team"
	// LabelUser is the user part of LabelTeam.
	LabelUser = "scheduling.navix.sh/user"

	// TenantLabelPrefix is what the labels of a claim stand below on its Pod: no
	// Service, NetworkPolicy or controller selects a Pod by what a tenant chose,
	// unless it was written for that.
	TenantLabelPrefix = "tenant.navix.sh/"

	// LabelEnv holds the name of the owning Env on each of its pools. The
	// autoscaler finds the Env, and a pool's siblings, by it rather than by
	// owner references.
	LabelEnv = "agentbox.navix.sh/env"
	// LabelScalingGroup holds the member's scaling group on its pool. A member
	// that takes no part in autoscaling has no such label.
	LabelScalingGroup = "agentbox.navix.sh/scaling-group"

	// LabelSyncSource tells where an object comes from. Without it the object
	// is local (or older than the label).
	LabelSyncSource = "agentbox.io/sync-source"
	// LabelSyncSourceGlobal is LabelSyncSource's value on what is managed from
	// above the cluster.
	LabelSyncSourceGlobal = "global"
)

// Values of SandboxPhaseLabelKey.
const (
	SandboxPhaseIdle    = "idle"
	SandboxPhaseRunning = "running"
	// SandboxPhaseStarting is between idle and running, while an image is pulled.
	SandboxPhaseStarting = "starting"
	// SandboxPhaseStopping is between running and idle, while the image is reset.
	SandboxPhaseStopping = "stopping"
	SandboxPhaseFailed   = "failed"
)

// SandboxProtectionFinalizer is on every Pod of a pool from its creation, and
// is added to older Pods that lack it. Without it a Pod deleted from outside
// (kubectl, eviction) could be gone before its terminal record is written, and
// history and metrics would lose the sandbox. It is removed only from a Pod
// that is really being deleted: after the record of a terminating Pod is
// written, or right before the worker itself deletes a failed Pod, scales
// down, removes the pool or gives up on a start.
const SandboxProtectionFinalizer = "agentbox.navix.sh/sandbox-protection"

// SandboxPoolFinalizer is on every pool, so that its Pods are wound down, and
// their sandboxes recorded, before the pool goes.
const SandboxPoolFinalizer = "agentbox.navix.sh/finalizer"

// CatalogFinalizer is on every object that the catalogue takes from the hub's
// own cluster: a deletion is seen even if the hub is away, and what is merely
// absent was not deleted (I5).
const CatalogFinalizer = "agentbox.navix.sh/catalog"
