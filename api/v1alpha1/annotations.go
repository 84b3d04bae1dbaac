// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Annotations of a claimed Pod. Pods are born with the maps they need, and a
// value is cleared to "" rather than removed; readers take "" as absent.
const (
	SandboxIDAnnotationKey = "agentbox.navix.sh/sandbox-id"
	// SandboxClaimedAtAnnotationKey and SandboxStartedAtAnnotationKey are
	// RFC 3339 times.
	SandboxClaimedAtAnnotationKey = "agentbox.navix.sh/claimed-at"
	SandboxStartedAtAnnotationKey = "agentbox.navix.sh/started-at"

	// SandboxIdleTimeoutAnnotationKey is the idle timeout in whole seconds,
	// written with the claim when there is one.
	SandboxIdleTimeoutAnnotationKey = "agentbox.navix.sh/idle-timeout"
	// SandboxStartupTimeoutAnnotationKey is the startup timeout in whole
	// seconds, resolved from request or pool and written with the claim. It
	// goes before the pool's own default.
	SandboxStartupTimeoutAnnotationKey = "agentbox.navix.sh/startup-timeout"
	// SandboxMaxLifetimeAnnotationKey is how long the sandbox may live from its
	// claim, in whole seconds, and SandboxFirstActivityTimeoutAnnotationKey how
	// long from its start it waits for its first activity. Both are written with
	// the claim when there is one.
	SandboxMaxLifetimeAnnotationKey          = "agentbox.navix.sh/max-lifetime"
	SandboxFirstActivityTimeoutAnnotationKey = "agentbox.navix.sh/first-activity-timeout"
	// SandboxLastActiveAnnotationKey is the RFC 3339 time of the sandbox's last
	// activity; it is flushed late, on purpose.
	SandboxLastActiveAnnotationKey = "agentbox.navix.sh/last-active"

	// SandboxMetadataAnnotationKey is the caller's metadata, a JSON object.
	SandboxMetadataAnnotationKey = "agentbox.navix.sh/sandbox-metadata"
	// SandboxManagedLabelKeysAnnotationKey and
	// SandboxManagedAnnotationKeysAnnotationKey list the keys that came with the
	// claim and go with the release.
	SandboxManagedLabelKeysAnnotationKey      = "agentbox.navix.sh/managed-label-keys"
	SandboxManagedAnnotationKeysAnnotationKey = "agentbox.navix.sh/managed-annotation-keys"

	// SandboxPauseAnnotationKey is a JSON object: whether the sandbox is to be
	// paused or to run again, and the CPU that its containers had. It is written
	// before they are resized, and cleared when they have it back.
	SandboxPauseAnnotationKey = "agentbox.navix.sh/pause"

	// SandboxPreparingAnnotationKey is "true" from the claim of a sandbox until
	// its daemon has the environment, files and Secrets of the claim. Until then
	// callers see the sandbox as STARTING and cannot reach it.
	SandboxPreparingAnnotationKey = "agentbox.navix.sh/preparing"

	// SandboxPostStartHooksAnnotationKey is a JSON list of post-start hooks,
	// written with the claim, run once the Pod is ready and before the sandbox
	// counts as running, and gone when the Pod is idle again.
	SandboxPostStartHooksAnnotationKey = "agentbox.navix.sh/post-start-hooks"
	// HookSecretLabelKey is "true" on a Secret whose values post-start hooks
	// of the namespace may refer to. Callers who may claim a sandbox there may
	// have them sent to it.
	HookSecretLabelKey = "agentbox.navix.sh/hook-secret"
	// HookSecretTeamsAnnotationKey limits that to the sandboxes of the teams
	// in a list, separated by commas.
	HookSecretTeamsAnnotationKey = "agentbox.navix.sh/hook-secret-teams"

	// SandboxStatusDetailAnnotationKey is a JSON SandboxStatusDetail: why the
	// sandbox is not where it should be.
	SandboxStatusDetailAnnotationKey = "agentbox.navix.sh/sandbox-status-detail"

	// ClaimKeyAnnotationKey is the caller's claim key, as given.
	ClaimKeyAnnotationKey = "agentbox.navix.sh/claim-key"
	// ClaimAttemptAnnotationKey is the attempt under which the key was
	// dispatched here.
	ClaimAttemptAnnotationKey = "agentbox.navix.sh/claim-attempt"
	// ClaimProofAnnotationKey is the hub's proof that it dispatched the key
	// here under this attempt.
	ClaimProofAnnotationKey = "agentbox.navix.sh/claim-proof"
	// ClaimIncarnationAnnotationKey is the incarnation of the worker that wrote
	// the claim. Of two Pods with one key the higher one stays.
	ClaimIncarnationAnnotationKey = "agentbox.navix.sh/claim-incarnation"
	// SwapFromContainerIDAnnotationKey is the id of the container that ran when
	// the image was changed. Running means that the kubelet reports another one.
	SwapFromContainerIDAnnotationKey = "agentbox.navix.sh/swap-from-container-id"
)

// Annotations that say how a sandbox ended. They are written with the release
// and read when the Pod is idle again or gone, to write its terminal record.
const (
	// SandboxStopReasonAnnotationKey is a SandboxStopReason.
	SandboxStopReasonAnnotationKey = "agentbox.navix.sh/stop-reason"
	// SandboxTerminatedAtAnnotationKey is an RFC 3339 time.
	SandboxTerminatedAtAnnotationKey = "agentbox.navix.sh/terminated-at"
	// SandboxFailureReasonAnnotationKey is the cause for machines, such as
	// "IdleTimeout", "OOMKilled" or "Evicted".
	SandboxFailureReasonAnnotationKey = "agentbox.navix.sh/failure-reason"
	// SandboxFailureMessageAnnotationKey is the cause for people.
	SandboxFailureMessageAnnotationKey = "agentbox.navix.sh/failure-message"
	// SandboxExitCodeAnnotationKey is the container's exit code in decimal.
	SandboxExitCodeAnnotationKey = "agentbox.navix.sh/exit-code"
	// SandboxRunningImagesAnnotationKey maps container to image as JSON, taken
	// at release, before the idle image is put back.
	SandboxRunningImagesAnnotationKey = "agentbox.navix.sh/running-images"
	// SandboxContainerIDAnnotationKey is the container id with its runtime
	// ("containerd://…") at release, before the reset replaces the container.
	SandboxContainerIDAnnotationKey = "agentbox.navix.sh/container-id"
)

// Annotations that steer what happens to a Pod.
const (
	// SandboxScaleDownProtectedAnnotationKey marks an idle Pod as chosen for
	// scale-down: the RFC 3339 time at which its protection window began. A
	// claim in that window clears it and keeps the Pod.
	SandboxScaleDownProtectedAnnotationKey = "agentbox.navix.sh/scale-down-protected"

	// SandboxIdleSinceAnnotationKey is the RFC 3339 time at which the Pod was
	// last made idle; a Pod that never ran a sandbox is idle since its creation.
	SandboxIdleSinceAnnotationKey = "agentbox.navix.sh/idle-since"

	// PartlyAdmittedAnnotationKey tells how many of a member's replicas were
	// admitted when its pool was made, and why no more: "3 of 10: QuotaExceeded:
	// team red may have 3 more". It is frozen with the rest of the member, and
	// speaks of it for as long as the member has that many.
	PartlyAdmittedAnnotationKey = "agentbox.navix.sh/partly-admitted"

	// TemplateRevisionAnnotationKey is the revision of the pool's Pod template
	// that the Pod was made from.
	TemplateRevisionAnnotationKey = "agentbox.navix.sh/template-revision"

	// RolloutAnnotationKey is how many idle Pods of a pool may be missing while
	// those of an old revision are replaced: a number, or a percentage of
	// replicas. "0" replaces none that could still serve. A refresh of a member writes
	// it; without it the pool's own default holds.
	RolloutAnnotationKey = "agentbox.navix.sh/rollout-max-unavailable"

	// RecyclePolicyAnnotationKey says what becomes of a Pod on release, one of
	// the RecyclePolicy values. Users may set it.
	RecyclePolicyAnnotationKey = "agentbox.navix.sh/recycle-policy"

	// AllowedImagesAnnotationKey, on an Env, a template or a pool, says which
	// images a claim may name besides those of the template: one pattern a line;
	// see docs/envs.md. Users may set it.
	AllowedImagesAnnotationKey = "agentbox.navix.sh/allowed-images"
	// AllowedContainersAnnotationKey, on the same objects, names containers that
	// callers reach besides the sandbox's own, one a line. Users may set it.
	AllowedContainersAnnotationKey = "agentbox.navix.sh/allowed-containers"

	// SandboxdAnnotationKey with the value SandboxdFromImage, on the Pod template
	// of a SandboxTemplate, says that its image brings atoll-sandboxd, so that
	// Pods do not get it for the runtime e2b. Users may set it there.
	SandboxdAnnotationKey = "agentbox.navix.sh/sandboxd"
	// SandboxdFromImage is the one value that SandboxdAnnotationKey knows.
	SandboxdFromImage = "image"

	// AllowDrainAnnotationKey with the value AllowDrainForce lets running
	// sandboxes be ended to drain what carries it. Users may set it.
	AllowDrainAnnotationKey = "agentbox.navix.sh/allow-drain"
	// AllowDrainForce is the one value that AllowDrainAnnotationKey knows.
	AllowDrainForce = "force"
)

// RecyclePolicy is a value of RecyclePolicyAnnotationKey.
type RecyclePolicy string

const (
	// RecyclePolicyAuto resets the Pod when that leaves nothing of the tenant
	// behind, and replaces it otherwise. It is what absence means.
	RecyclePolicyAuto RecyclePolicy = "Auto"
	// RecyclePolicyReplace always replaces the Pod.
	RecyclePolicyReplace RecyclePolicy = "Replace"
	// RecyclePolicyReuse keeps the Pod as it is, for the same team and user and
	// for no other caller.
	RecyclePolicyReuse RecyclePolicy = "Reuse"
)

// Annotations of templates and pools.
const (
	// SandboxTemplateDocsAnnotationKey is the template's documentation, in
	// Markdown. Users may set it.
	SandboxTemplateDocsAnnotationKey = "agentbox.navix.sh/docs"
	// SandboxTemplatePoolDocsAnnotationKey was documentation for one pool.
	//
	// Deprecated: nothing reads it; use SandboxTemplateDocsAnnotationKey.
	SandboxTemplatePoolDocsAnnotationKey = "agentbox.navix.sh/pool-docs"

	// SandboxPoolTemplateNameAnnotationKey and
	// SandboxPoolTemplateVersionAnnotationKey tell which template, at which
	// version, the pool was made from.
	SandboxPoolTemplateNameAnnotationKey    = "agentbox.navix.sh/template-name"
	SandboxPoolTemplateVersionAnnotationKey = "agentbox.navix.sh/template-version"
	// SandboxPoolOverridesAnnotationKey holds all overrides of the pool as one
	// JSON object, so that they can be laid over a newer template again.
	SandboxPoolOverridesAnnotationKey = "agentbox.navix.sh/overrides"

	// EgressAnnotationKey lists what the Pods of a pool may connect to, where
	// the worker closes their network: dns, internet, CIDRs and DNS names, with
	// ports. Pools have it from their template. Users may set it.
	EgressAnnotationKey = "agentbox.navix.sh/egress"

	// EgressLabelKey is EgressDenied on the Pod of a sandbox whose claim asked
	// that it may connect to nothing. The worker writes it with the claim.
	EgressLabelKey = "agentbox.navix.sh/egress"
	EgressDenied   = "denied"

	// LastSandboxCreateTimeAnnotationKey is the RFC 3339 UTC time of the pool's
	// latest create. The worker keeps it in memory and flushes it about every
	// 5 s if it moved; the autoscaler reads the annotation only when memory is
	// empty, as after a restart. Absent means never.
	LastSandboxCreateTimeAnnotationKey = "agentbox.navix.sh/last-sandbox-create-time"
)

// Labels and annotations of what the catalogue of a hub has made.
const (
	// CatalogAnnotationKey is ID/REVISION: the catalogue, and the revision that
	// was applied.
	CatalogAnnotationKey = "agentbox.navix.sh/catalog"
	// CatalogRolloutAnnotationKey, on an Env of the catalogue, says how a change
	// goes from cluster to cluster. It stays at the hub. Users may set it.
	CatalogRolloutAnnotationKey = "agentbox.navix.sh/rollout"
)

// UserAnnotationKeys are the reserved keys that users may set on Envs, pools,
// templates and Pods. The policies of the worker's chart have the same list.
var UserAnnotationKeys = []string{
	RecyclePolicyAnnotationKey,
	AllowDrainAnnotationKey,
	EgressAnnotationKey,
	SandboxTemplateDocsAnnotationKey,
	// Nothing reads it any more. That is no reason to refuse a manifest that has
	// it.
	SandboxTemplatePoolDocsAnnotationKey,
	AllowedImagesAnnotationKey,
	AllowedContainersAnnotationKey,
}

// TenantAnnotationKeys are what a claim, the sandbox's life and its end write
// on a Pod, and what the next tenant must not see.
var TenantAnnotationKeys = []string{
	SandboxIDAnnotationKey,
	SandboxClaimedAtAnnotationKey,
	SandboxStartedAtAnnotationKey,
	SandboxIdleTimeoutAnnotationKey,
	SandboxStartupTimeoutAnnotationKey,
	SandboxMaxLifetimeAnnotationKey,
	SandboxFirstActivityTimeoutAnnotationKey,
	SandboxMetadataAnnotationKey,
	SandboxManagedLabelKeysAnnotationKey,
	SandboxManagedAnnotationKeysAnnotationKey,
	SandboxPreparingAnnotationKey,
	SandboxPostStartHooksAnnotationKey,
	ClaimKeyAnnotationKey,
	ClaimAttemptAnnotationKey,
	ClaimProofAnnotationKey,
	ClaimIncarnationAnnotationKey,
	SwapFromContainerIDAnnotationKey,
	SandboxStopReasonAnnotationKey,
	SandboxTerminatedAtAnnotationKey,
	SandboxFailureReasonAnnotationKey,
	SandboxFailureMessageAnnotationKey,
	SandboxExitCodeAnnotationKey,
	SandboxRunningImagesAnnotationKey,
	SandboxContainerIDAnnotationKey,
	SandboxLastActiveAnnotationKey,
	SandboxStatusDetailAnnotationKey,
}
