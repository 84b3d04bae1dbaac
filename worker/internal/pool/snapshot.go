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

// Snapshot is all that a decision about one pool is made from. The objects in it
// are the cache's own and must not be changed.
type Snapshot struct {
	// Pool is nil when the pool is gone; then its Pods are only seen off.
	Pool *v1alpha1.SandboxPool
	// Revision is the pool's template revision now.
	Revision string
	// Unrendered is the same template's revision from before runtimes were part of
	// Pods; those that carry it are current, too.
	Unrendered string
	// Pods are those that the pool controls, in the order of their names.
	Pods []*corev1.Pod
	// Ages tells how long this process has seen each Pod in its present stage.
	Ages map[types.UID]time.Duration
	// Noted is for how long the status detail of a Pod is not written again.
	Noted map[types.UID]time.Duration
	// Stale names the Pods that the cache holds as they were before our last
	// write.
	Stale map[types.UID]bool
	// Paused: somebody else keeps this pool, and it is left alone.
	Paused bool
	// Awaits: what Pods are made from is not there yet.
	Awaits bool
	// Conditions are those that others have found, for the pool's status.
	Conditions []patch.Condition
	// Settled is false while creates or deletes are missing from Pods.
	Settled bool
	// Window is how long a Pod that is marked for scale-down can be claimed.
	Window time.Duration
	// Autoscaled: the autoscaler marks Pods, and lowers replicas once their window is over.
	Autoscaled bool
	// CrashBackoff is how long Pods that crashed while idle are left alone.
	CrashBackoff time.Duration
	// Refused is for how long no Pods are made, because the latest was refused.
	Refused time.Duration
	// NewPod is how long a new Pod takes to be ready.
	NewPod time.Duration
	// Preparations are how far the hooks and readiness checks of starting Pods
	// are; Pods that need none are not in it.
	Preparations map[types.UID]hooks.State
	// HeldBack is the longest time for which each node was seen to hold back a
	// container that ran before; nodes that were not seen to do so are not in it.
	HeldBack map[string]time.Duration
}

// Verb is what is done to a Pod.
type Verb string

// The verbs, in the order in which they are carried out: what a caller waits for
// comes first.
const (
	// Start: a starting sandbox runs.
	Start Verb = "Start"
	// Prepare: the Pod of a starting sandbox is ready; what has to happen before
	// it runs begins.
	Prepare Verb = "Prepare"
	// Release: a sandbox ended, and its Pod may be worth resetting.
	Release Verb = "Release"
	// Fail: a sandbox ended in a way that takes its Pod along.
	Fail Verb = "Fail"
	// Relabel: labels that were edited by hand are written back.
	Relabel Verb = "Relabel"
	// Recycle: a stopping Pod is reset and idle again.
	Recycle Verb = "Recycle"
	// Bury: a Pod is being deleted; its sandbox is recorded, then it may go.
	Bury Verb = "Bury"
	// Unmark: a Pod marked for scale-down is kept after all.
	Unmark Verb = "Unmark"
	// Protect: a Pod lacks the protection finalizer, or an owner.
	Protect Verb = "Protect"
	// Detail: what a starting sandbox waits for is written down.
	Detail Verb = "Detail"
	// Delete: a Pod is deleted, if it is still as it was seen.
	Delete Verb = "Delete"
	// Mark: an idle Pod is chosen for scale-down.
	Mark Verb = "Mark"
)

// Reason is why an action is taken.
type Reason string

// The reasons.
const (
	ReasonRunning         Reason = "Running"
	ReasonStartupTimeout  Reason = "StartupTimeout"
	ReasonHooksDue        Reason = "HooksDue"
	ReasonHookFailed      Reason = hooks.ReasonFailed
	ReasonEnded           Reason = "Ended"
	ReasonReset           Reason = "Reset"
	ReasonNotRecyclable   Reason = "NotRecyclable"
	ReasonResetBackoff    Reason = "ResetBackOff"
	ReasonResetTimeout    Reason = "ResetTimeout"
	ReasonHeldBack        Reason = "NodeHoldsBack"
	ReasonOutdated        Reason = "TemplateOutdated"
	ReasonFailed          Reason = "SandboxFailed"
	ReasonIdleCrashed     Reason = "IdlePodFinished"
	ReasonNobodys         Reason = "PhaseWithoutSandbox"
	ReasonTerminating     Reason = "PodTerminating"
	ReasonUnprotected     Reason = "FinalizerOrOwnerMissing"
	ReasonLabelsEdited    Reason = "LabelsEdited"
	ReasonScaleDown       Reason = "ScaleDown"
	ReasonReplicasRaised  Reason = "ReplicasRaised"
	ReasonNotFollowedUp   Reason = "MarkNotFollowedUp"
	ReasonPoolTerminating Reason = "PoolTerminating"
	ReasonWaiting         Reason = "Waiting"
)

// Reasons of Events alone.
const (
	// ReasonSandboxEnded: a sandbox ended in another way than by itself or by its
	// owner.
	ReasonSandboxEnded Reason = "SandboxEnded"
	// ReasonCreationFailed: the API server refuses a Pod, for a quota say.
	ReasonCreationFailed Reason = "PodCreationFailed"
	// ReasonPodsNotReady: idle Pods do not become ready.
	ReasonPodsNotReady Reason = "PodsNotReady"
)

// Action is one thing to do to one Pod.
type Action struct {
	Verb   Verb
	Pod    *corev1.Pod
	Reason Reason
	End    sandbox.End                  // of Release and Fail
	Detail v1alpha1.SandboxStatusDetail // of Detail
}

// ScaleReason is why the number of Pods is or is not being changed.
type ScaleReason string

// The scale reasons.
const (
	ScaleNone       ScaleReason = "ReplicasReady"
	ScaleUp         ScaleReason = "ScalingUp"
	ScaleDown       ScaleReason = "ScalingDown"
	ScaleDownBusy   ScaleReason = "OnlySandboxesLeft" // more Pods than replicas, and none of them idle
	ScaleUnsettled  ScaleReason = "AwaitingEvents"
	ScaleDraining   ScaleReason = "Draining"
	ScalePoolAbsent ScaleReason = "PoolAbsent"
	ScaleRefused    ScaleReason = "PodsRefused" // a quota, a limit or a plugin is against more
	ScaleAwaiting   ScaleReason = "AwaitingTemplate"
	ScaleUnrecorded ScaleReason = "AwaitingRecords" // too many Pods wait for their records to be kept
)

// Decision is what to do about a pool.
type Decision struct {
	Actions []Action
	// Create is the number of Pods to create.
	Create int
	Scale  ScaleReason
	// Wake is when to decide again although nothing has happened; 0 is never.
	Wake time.Duration
	// ReleasePool: the pool is being deleted and no Pod is left.
	ReleasePool bool
	// ProtectPool: the pool lacks its finalizer.
	ProtectPool bool
}

func (d *Decision) add(a Action) { d.Actions = append(d.Actions, a) }

// wake asks to be woken in d at the latest.
func (d *Decision) wake(in time.Duration) {
	if in > 0 && (d.Wake == 0 || in < d.Wake) {
		d.Wake = in
	}
}
