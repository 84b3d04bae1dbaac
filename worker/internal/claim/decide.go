// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/hook"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/allowed"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
)

// resultOfRead returns the result of a refused write, given a live read of its Pod. The Pod carries the claim itself if the response to an
// earlier try was lost.
func resultOfRead(id string, pod, live *corev1.Pod, err error) inventory.Result {
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

// admission is the decision about a claim that needs a Pod, or the reason why it gets none.
type admission string

const (
	takesPod admission = "TakesPod"
	waits    admission = "Waits"
	// displaces: the claim waits, and the newest claim of the tenant with the most claims in the queue makes room for it.
	displaces admission = "Displaces"

	canceled     admission = "Canceled"
	poolRemoved  admission = "PoolRemoved"
	pastDeadline admission = "Deadline"
	noneIdle     admission = "NoQueue"
	// hopeless: the pool has no Pods, and stays saturated beyond the claim's deadline.
	hopeless  admission = "Hopeless"
	queueFull admission = "QueueFull"
	// displaced: the waiting claim made room for a claim of a tenant with fewer claims in the queue.
	displaced admission = "Displaced"
	// withdrawn: the hub takes the waiting claim to another cluster.
	withdrawn admission = "Withdrawn"
)

// asking is a claim that needs a Pod, and the state of its queue and pool.
type asking struct {
	canceled, closing bool
	left              time.Duration // until its deadline
	idle              bool          // a Pod is idle
	noQueue           bool
	again             bool // the claim had a Pod and lost it
	waiting, capacity int
	own, most         int // waiting claims of its tenant, and of the tenant with the most
	// empty means that the pool has no Pods and wants none. saturated is how long that lasts.
	empty     bool
	saturated time.Duration
}

// admit decides whether a claim gets a Pod, waits, or fails.
//
// Only a deadline that has passed is certainly missed. The rate at which Pods became idle predicts little: they come in bursts, above all
// by scale-up, which counts the very claims that wait. A claim that is refused wrongly loses a sandbox; one that waits in vain loses only
// time that it had. But if there is no Pod, and the autoscaler was refused more and will not ask again in time, no Pod can come.
//
// A tenant that fills a queue does not keep the others out: it makes room for them until all have an equal share. Two tenants whose shares
// differ by one do not displace each other, because neither would gain.
func admit(a *asking) admission {
	switch {
	case a.canceled:
		return canceled
	case a.closing:
		return poolRemoved
	case a.left <= 0:
		return pastDeadline
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
		return queueFull
	}
}

// imageOf returns the image of a claim's sandbox. The error is a refusal, because another pool may allow an image that this one does not.
func imageOf(asked string, spec *v1alpha1.SandboxPoolSpec, lists allowed.Lists) (string, error) {
	if asked == "" {
		return sandbox.DefaultImage(spec), nil
	}
	if p := lists.Image(asked, sandbox.DefaultImage(spec), sandbox.IdleImage(spec)); p != nil {
		return "", refusalOf(p)
	}
	return asked, nil
}

// containersOf refuses hooks for containers that callers cannot reach.
func containersOf(r *sandboxv1.CreateSandboxRequest, spec *v1alpha1.SandboxPoolSpec, lists allowed.Lists) error {
	actions, _ := hook.Parse(r.GetPostStartHooks()) // already checked
	for i := range actions {
		if exec := actions[i].Exec; exec != nil {
			if _, p := lists.Container(exec.Container, sandbox.MainContainer(&spec.Template.Spec)); p != nil {
				p.Message = fmt.Sprintf("postStartHooks[%d].exec.%s", i, p.Message)
				return refusalOf(p)
			}
		}
	}
	return nil
}

func refusalOf(p *problem.Error) error {
	if p.Reason == problem.Forbidden {
		return disposition.Refusal(p)
	}
	return disposition.Fault(p)
}

// failedStart is a sandbox that ended before it ran, and its claim without a key.
type failedStart struct {
	record *sandboxv1.Sandbox
	starts int           // sandboxes that the claim got, including this one
	left   time.Duration // until its deadline
}

// startsAnother reports whether the claim gets another Pod. It gets none if the request is at fault, because another Pod would do no
// better, or if the sandbox was ended on purpose.
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
		return outcome.Refusal(r) == nil
	}
}

// keyAction is what a claim with a key must do, given what exists for the key.
type keyAction string

const (
	startAnew keyAction = "StartAnew"
	// joinClaim: the same attempt is under way.
	joinClaim keyAction = "Join"
	// returnHolder: a Pod carries the same attempt.
	returnHolder keyAction = "ReturnHolder"
	// returnRecord: the sandbox of this attempt has ended.
	returnRecord keyAction = "ReturnRecord"
	// refuseAgain: this attempt, or a later one, was refused or canceled.
	refuseAgain keyAction = "RefuseAgain"
	// outdated: a later attempt is known.
	outdated keyAction = "Outdated"
)

// known has the attempts of what exists for a key. 0 means that nothing does.
type known struct {
	refused int32 // up to this attempt
	pending int32 // the attempt under way
	held    int32 // of the Pod that holds the key
	ended   int32 // of the latest record
}

func (k known) latest() int32 { return max(k.pending, k.held, k.ended) }

// decideKey returns what a claim's attempt must do. An attempt later than all known ones starts a new sandbox: the hub begins one only
// after the earlier attempt was refused or canceled. If the earlier Pod still exists, the rule for two Pods of one key ends it.
func decideKey(k known, attempt int32) keyAction {
	switch latest := k.latest(); {
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
