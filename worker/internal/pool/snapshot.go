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

// snapshot is the complete input of a decision about one pool. Its objects belong to the cache and must not be modified.
type snapshot struct {
	// Pool is nil if the pool is gone. Its remaining Pods are then only cleaned up.
	Pool *v1alpha1.SandboxPool
	// Revision is the current revision of the pool's template.
	Revision string
	// Unrendered is the same template's revision as computed before runtimes were part of Pods. Pods that carry it are current as well.
	Unrendered string
	// Pods are the pool's Pods, sorted by name.
	Pods []*corev1.Pod
	// Ages is how long this process has seen each Pod in its current stage.
	Ages map[types.UID]time.Duration
	// Noted is how long the status detail of each Pod must not be written again.
	Noted map[types.UID]time.Duration
	// Stale has the Pods for which the cache does not show our last write yet.
	Stale map[types.UID]bool
	// Paused means that another controller manages this pool, which is left alone.
	Paused bool
	// Awaits means that no Pods are created yet, because something that they need, such as the template or the NetworkPolicy, does not exist.
	Awaits bool
	// Conditions are the Gaters' conditions for the pool's status.
	Conditions []patch.Condition
	// Settled is false while the cache lacks creates or deletes.
	Settled bool
	// Window is how long a Pod that is marked for scale-down stays claimable.
	Window time.Duration
	// Autoscaled means that the autoscaler marks Pods, and lowers replicas when their window is over.
	Autoscaled bool
	// CrashBackoff is how long Pods that crashed while idle are still left alone.
	CrashBackoff time.Duration
	// Refused is how long no Pods are created, because the last one was refused.
	Refused time.Duration
	// NewPod is how long a new Pod takes to be ready.
	NewPod time.Duration
	// Preparations are the states of the hooks and readiness checks of starting Pods. Pods that need none have no entry.
	Preparations map[types.UID]hooks.State
	// HeldBack is the longest delay of a restarted container that was seen on each node. Nodes without one have no entry.
	HeldBack map[string]time.Duration
}

// verb is an action on a Pod.
type verb string

// The verbs, in the order in which they are carried out: those that a caller waits for come first.
const (
	// verbStart marks a starting sandbox as running.
	verbStart verb = "Start"
	// verbPrepare begins the hooks and checks of a starting sandbox whose Pod is ready.
	verbPrepare verb = "Prepare"
	// verbRelease ends a sandbox whose Pod may be reset.
	verbRelease verb = "Release"
	// verbFail ends a sandbox whose Pod must be replaced.
	verbFail verb = "Fail"
	// verbRelabel restores labels that were edited manually.
	verbRelabel verb = "Relabel"
	// verbRecycle makes a stopping Pod that has been reset idle again.
	verbRecycle verb = "Recycle"
	// verbBury records the sandbox of a Pod that is being deleted, and then removes the Pod's finalizer.
	verbBury verb = "Bury"
	// verbUnmark keeps a Pod that was marked for scale-down.
	verbUnmark verb = "Unmark"
	// verbProtect adds the protection finalizer or an owner to a Pod that lacks it.
	verbProtect verb = "Protect"
	// verbDetail writes what a starting sandbox waits for.
	verbDetail verb = "Detail"
	// verbDelete deletes a Pod if it has not changed since it was read.
	verbDelete verb = "Delete"
	// verbMark marks an idle Pod for scale-down.
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

// Reasons that only Events have.
const (
	// reasonSandboxEnded: a sandbox ended neither on its own nor by its owner.
	reasonSandboxEnded reason = "SandboxEnded"
	// reasonCreationFailed: the API server refuses a Pod, for example because of a quota.
	reasonCreationFailed reason = "PodCreationFailed"
	// reasonPodsNotReady: idle Pods do not become ready.
	reasonPodsNotReady reason = "PodsNotReady"
)

// action is one action on one Pod.
type action struct {
	Verb   verb
	Pod    *corev1.Pod
	Reason reason
	End    sandbox.End                  // of Release and Fail
	Detail v1alpha1.SandboxStatusDetail // of Detail
	// Released is the termination that the Pod was deleted for, and that it does not show; of Bury. act reads it before it stores the record.
	Released *sandbox.Termination
}

// scaleReason is why the number of Pods is changing or not.
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
	scaleUnrecorded scaleReason = "AwaitingRecords" // too many Pods wait until their records are stored
)

// decision has the actions for a pool.
type decision struct {
	Actions []action
	// Create is the number of Pods to create.
	Create int
	Scale  scaleReason
	// Wake is when to decide again without an event, or 0 for never.
	Wake time.Duration
	// ReleasePool means that the pool is being deleted and no Pod is left.
	ReleasePool bool
	// ProtectPool means that the pool lacks its finalizer.
	ProtectPool bool
}

func (d *decision) add(a action) { d.Actions = append(d.Actions, a) }

// wake requests a new decision after the given time at the latest.
func (d *decision) wake(in time.Duration) {
	if in > 0 && (d.Wake == 0 || in < d.Wake) {
		d.Wake = in
	}
}
