// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxes"
)

// whatItMet is the result of a write that was refused, by what a live read of its Pod has found: the claim itself, if an earlier try
// went through unheard.
func whatItMet(id string, pod, live *corev1.Pod, err error) inventory.Result {
	switch {
	case apierrors.IsNotFound(err) || err == nil && live.UID != pod.UID:
		return inventory.NoPod
	case err != nil:
		return inventory.Unclear
	case sandbox.Read(live).ID == id:
		return inventory.Written
	default:
		return inventory.Lost
	}
}

// admission is what becomes of a claim that asks for a Pod, or why it gets none.
type admission string

const (
	takesPod admission = "TakesPod"
	waits    admission = "Waits"
	// displaces: it waits, and the newest claim of the tenant that has most in the queue makes room for it.
	displaces admission = "Displaces"

	canceled admission = "Canceled"
	closing  admission = "PoolRemoved"
	tooLate  admission = "Deadline"
	noneIdle admission = "NoQueue"
	// hopeless: the pool has no Pods, and is saturated for longer than the claim has.
	hopeless admission = "Hopeless"
	full     admission = "QueueFull"
	// displaced: it waited, and made room for a claim of a tenant that had fewer in the queue.
	displaced admission = "Displaced"
)

// asking is a claim that asks for a Pod, and what it finds.
type asking struct {
	canceled, closing bool
	left              time.Duration // until its deadline
	idle              bool          // there is a Pod
	noQueue           bool
	again             bool // it had a Pod and lost it
	waiting, capacity int
	own, most         int // waiting claims of its tenant, and of the tenant that has most
	// empty: there are no Pods, nor are there to be any. saturated is for how long that stays so.
	empty     bool
	saturated time.Duration
}

// admit decides.
//
// Only a deadline that has passed is one that cannot be met. How fast Pods came so far says little of how fast they will:
// they come in bursts, by scale-up above all, which goes by the very claims that wait. A claim that is refused wrongly has
// lost a sandbox, and one that waits in vain only time, which it had. But where there is no Pod, and the autoscaler was
// refused more and will not ask again in time, none can come.
//
// A full queue does not let a tenant that fills it keep the others out: it gives way to them, until all have the same part
// of it. Two tenants whose parts differ by one do not displace each other: it would gain nobody anything.
func admit(a *asking) admission {
	switch {
	case a.canceled:
		return canceled
	case a.closing:
		return closing
	case a.left <= 0:
		return tooLate
	case a.idle:
		return takesPod
	case a.noQueue:
		return noneIdle
	case a.empty && a.saturated >= a.left:
		return hopeless
	case a.again || a.waiting < a.capacity:
		return waits
	case a.own+1 < a.most:
		return displaces
	default:
		return full
	}
}

// failedStart is a sandbox that has ended before it ran, and the claim without a key that waits for it.
type failedStart struct {
	record *sandboxv1.Sandbox
	starts int           // sandboxes that the claim was given, this one included
	left   time.Duration // until its deadline
}

// startsAnother reports whether the claim gets another Pod. It does not where another one would do no better, because what
// was asked for is at fault, nor where somebody ended the sandbox on purpose.
func startsAnother(f failedStart) bool {
	r := f.record
	switch {
	case f.starts >= maxStarts || f.left < startReserve:
		return false
	case r.GetStopReason() == "": // its Pod is being deleted
		return true
	case r.GetStopReason() != string(v1alpha1.SandboxStopReasonFailed) || r.ExitCode != nil:
		return false
	default:
		return !sandboxes.BadImage(r.GetFailureReason()) && r.GetFailureReason() != hooks.ReasonFailed
	}
}

// meeting is what a claim of (key, attempt) finds.
type meeting string

const (
	startAnew meeting = "StartAnew"
	// joinClaim: the same attempt is being carried out.
	joinClaim meeting = "Join"
	// returnHolder: a Pod carries the same attempt.
	returnHolder meeting = "ReturnHolder"
	// returnRecord: the sandbox of this attempt has ended.
	returnRecord meeting = "ReturnRecord"
	// refuseAgain: this attempt, or a later one, was refused or canceled.
	refuseAgain meeting = "RefuseAgain"
	// outdated: a later attempt is known.
	outdated meeting = "Outdated"
)

// known is what is known of a key; attempts are 0 where there is nothing.
type known struct {
	refused int32 // up to this attempt
	pending int32 // the attempt being carried out
	held    int32 // of the Pod that stays
	ended   int32 // of the latest record
}

// meet decides. A later attempt than all known ones starts anew: the hub makes one only after the earlier one was refused
// or canceled, and if its Pod is still there, the rule for two Pods of one key ends it.
func meet(k known, attempt int32) meeting {
	switch latest := max(k.pending, k.held, k.ended); {
	case attempt == k.ended:
		return returnRecord
	case attempt <= k.refused:
		return refuseAgain
	case attempt < latest:
		return outdated
	case attempt == k.held:
		return returnHolder
	case attempt == k.pending:
		return joinClaim
	default:
		return startAnew
	}
}
