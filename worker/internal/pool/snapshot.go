// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/sandbox"
)

// snapshot is all that a decision about one pool is made from. Its objects are the cache's and must not be changed.
type snapshot struct {
	// Pool is nil when the pool is gone; its remaining Pods are then only cleaned up.
	Pool *v1alpha1.SandboxPool
	// Revision is the current revision of the pool's template.
	Revision string
	// Unrendered is the same template's revision from before runtimes were part of Pods. Pods that carry it are current as well.
	Unrendered string
	// Pods are those that the pool controls, in the order of their names.
	Pods []*corev1.Pod
	// Ages is how long this process has seen each Pod in its present stage.
	Ages map[types.UID]time.Duration
	// Noted is how long the status detail of a Pod must not be written again.
	Noted map[types.UID]time.Duration
	// Stale are the Pods that the cache holds as they were before our last write.
	Stale map[types.UID]bool
	// Paused: another controller keeps this pool, and it is left alone.
	Paused bool
	// Awaits: what Pods are created from does not exist yet.
	Awaits bool
	// Conditions are those of the Gaters, for the pool's status.
	Conditions []patch.Condition
	// Settled is false while creates or deletes are missing from Pods.
	Settled bool
	// Window is how long a Pod that is marked for scale-down can be claimed.
	Window time.Duration
	// Autoscaled: the autoscaler marks Pods, and lowers replicas once their window is over.
	Autoscaled bool
	// CrashBackoff is how long Pods that crashed while idle are left alone.
	CrashBackoff time.Duration
	// Refused is how long no Pods are created, because the latest was refused.
	Refused time.Duration
	// NewPod is how long a new Pod takes to be ready.
	NewPod time.Duration
	// Preparations are the states of the hooks and readiness checks of starting Pods; Pods that need none are missing.
	Preparations map[types.UID]hooks.State
	// HeldBack is the longest time for which each node was seen to hold back a container that ran before; other nodes are
	// missing.
	HeldBack map[string]time.Duration
}

// verb is what is done to a Pod.
type verb string

// The verbs, in the order in which they are carried out: what a caller waits for comes first.
const (
	// Start: a starting sandbox runs.
	verbStart verb = "Start"
	// Prepare: the Pod of a starting sandbox is ready, and its hooks and checks begin.
	verbPrepare verb = "Prepare"
	// Release: a sandbox ended, and its Pod may be reset.
	verbRelease verb = "Release"
	// Fail: a sandbox ended, and its Pod must be replaced.
	verbFail verb = "Fail"
	// Relabel: labels that were edited by hand are written back.
	verbRelabel verb = "Relabel"
	// Recycle: a stopping Pod has been reset and is idle again.
	verbRecycle verb = "Recycle"
	// Bury: a Pod is being deleted; its sandbox is recorded, then its finalizer is removed.
	verbBury verb = "Bury"
	// Unmark: a Pod marked for scale-down is kept.
	verbUnmark verb = "Unmark"
	// Protect: a Pod lacks the protection finalizer, or an owner.
	verbProtect verb = "Protect"
	// Detail: what a starting sandbox waits for is written.
	verbDetail verb = "Detail"
	// Delete: a Pod is deleted if it has not changed since it was seen.
	verbDelete verb = "Delete"
	// Mark: an idle Pod is chosen for scale-down.
	verbMark verb = "Mark"
)

// reason is why an action is taken.
type reason string

// The reasons.
const (
	reasonRunning         reason = "Running"
	reasonStartupTimeout  reason = "StartupTimeout"
	reasonHooksDue        reason = "HooksDue"
	reasonHookFailed      reason = hooks.ReasonFailed
	reasonHookSecret      reason = hooks.ReasonSecret
	reasonEnded           reason = "Ended"
	reasonReset           reason = "Reset"
	reasonNotRecyclable   reason = "NotRecyclable"
	reasonResetBackoff    reason = "ResetBackOff"
	reasonResetTimeout    reason = "ResetTimeout"
	reasonHeldBack        reason = "NodeHoldsBack"
	reasonOutdated        reason = "TemplateOutdated"
	reasonFailed          reason = "SandboxFailed"
	reasonIdleCrashed     reason = "IdlePodFinished"
	reasonWithoutSandbox  reason = "PhaseWithoutSandbox"
	reasonTerminating     reason = "PodTerminating"
	reasonUnprotected     reason = "FinalizerOrOwnerMissing"
	reasonLabelsEdited    reason = "LabelsEdited"
	reasonScaleDown       reason = "ScaleDown"
	reasonReplicasRaised  reason = "ReplicasRaised"
	reasonNotFollowedUp   reason = "MarkNotFollowedUp"
	reasonPoolTerminating reason = "PoolTerminating"
	reasonWaiting         reason = "Waiting"
)

// Reasons of Events alone.
const (
	// ReasonSandboxEnded: a sandbox ended neither on its own nor by its owner.
	reasonSandboxEnded reason = "SandboxEnded"
	// ReasonCreationFailed: the API server refuses a Pod, for example for a quota.
	reasonCreationFailed reason = "PodCreationFailed"
	// ReasonPodsNotReady: idle Pods do not become ready.
	reasonPodsNotReady reason = "PodsNotReady"
)

// action is one thing to do to one Pod.
type action struct {
	Verb   verb
	Pod    *corev1.Pod
	Reason reason
	End    sandbox.End                  // of Release and Fail
	Detail v1alpha1.SandboxStatusDetail // of Detail
	// Released is the end that the Pod was deleted for, which it does not show; of Bury. act reads it before the record is kept.
	Released *sandbox.Termination
}

// scaleReason is why the number of Pods is changing, or is not.
type scaleReason string

// The scale reasons.
const (
	scaleNone       scaleReason = "ReplicasReady"
	scaleUp         scaleReason = "ScalingUp"
	scaleDown       scaleReason = "ScalingDown"
	scaleDownBusy   scaleReason = "OnlySandboxesLeft" // more Pods than replicas, and none of them idle
	scaleUnsettled  scaleReason = "AwaitingEvents"
	scaleDraining   scaleReason = "Draining"
	scalePoolAbsent scaleReason = "PoolAbsent"
	scaleRefused    scaleReason = "PodsRefused" // a quota, a limit or a plugin refuses more
	scaleAwaiting   scaleReason = "AwaitingTemplate"
	scaleUnrecorded scaleReason = "AwaitingRecords" // too many Pods wait for their records to be kept
)

// decision is what to do about a pool.
type decision struct {
	Actions []action
	// Create is the number of Pods to create.
	Create int
	Scale  scaleReason
	// Wake is when to decide again without an event; 0: never.
	Wake time.Duration
	// ReleasePool: the pool is being deleted and no Pod is left.
	ReleasePool bool
	// ProtectPool: the pool lacks its finalizer.
	ProtectPool bool
}

func (d *decision) add(a action) { d.Actions = append(d.Actions, a) }

// wake requests a wake-up in d at the latest.
func (d *decision) wake(in time.Duration) {
	if in > 0 && (d.Wake == 0 || in < d.Wake) {
		d.Wake = in
	}
}
