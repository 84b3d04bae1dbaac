// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/recovery"
)

// maxCandidates is how many candidates one call tries.
const maxCandidates = 3

// dispatchOutcome is what one dispatch of a claim came to.
type dispatchOutcome string

const (
	granted dispatchOutcome = "Granted"
	failed  dispatchOutcome = "Failed"       // by the request's own fault: no other cluster would do better
	refused dispatchOutcome = "Refused"      // no Pod was taken and none will be for this attempt
	stale   dispatchOutcome = "StaleSession" // nothing was looked at
	notSent dispatchOutcome = "NotSent"
	unclear dispatchOutcome = "Unclear" // a Pod may or may not carry the claim
	left    dispatchOutcome = "Left"    // as unclear, because the caller has gone; it is told apart in metrics
	// gaveUp: it may carry one, in a cluster that an operator has forgotten, which is the permission to go elsewhere.
	gaveUp dispatchOutcome = "Forgotten"
)

// readAnswer reads a dispatch's result. Whatever is not understood is unclear, which is the safe side.
func readAnswer(answer *federationv1.Answer, err error) dispatchOutcome {
	switch {
	case errors.Is(err, calls.ErrNotConnected):
		return notSent
	case err != nil:
		return unclear
	}
	switch answer.GetDisposition() {
	case federationv1.Disposition_DONE:
		if answer.GetError() != nil {
			return failed
		}
		if answer.GetSandbox() == nil {
			return unclear
		}
		return granted
	case federationv1.Disposition_REFUSED:
		return refused
	case federationv1.Disposition_STALE_SESSION:
		return stale
	default:
		return unclear
	}
}

// situation is what the choice of the next step depends on.
type situation struct {
	keyed        bool
	open         bool // an earlier dispatch of this attempt, perhaps of an earlier process, may have arrived
	staleRetried bool // this attempt has met a new session before
	tried        int  // candidates asked, this one included
	expired      bool // the claim's deadline has passed
}

// step is what happens after a dispatch.
type step string

const (
	answerCaller step = "Answer"
	failCaller   step = "Fail"      // with the worker's error
	askAgain     step = "AskAgain"  // the same cluster and attempt, at once
	askLater     step = "AskLater"  // the same cluster and attempt, after a pause
	goElsewhere  step = "Elsewhere" // next candidate, next attempt
	giveUp       step = "GiveUp"    // with the last refusal
	runOut       step = "RunOut"    // DEADLINE: certainly nothing was granted, or its caller cannot ask for it any more
	stayUnknown  step = "Unknown"   // OUTCOME_UNKNOWN
)

// next decides what follows an outcome. For a keyed claim it never leaves a cluster that may hold a Pod for it.
func next(s situation, o dispatchOutcome) step {
	if o == stale && s.staleRetried {
		o = notSent // a session that changes under every call is as good as none
	}
	switch o {
	case granted:
		return answerCaller
	case failed:
		return failCaller
	case stale:
		return askAgain
	case refused, gaveUp:
		return s.leave()
	case notSent:
		if s.keyed && s.open {
			return s.stay()
		}
		return s.leave()
	default:
		if s.keyed {
			return s.stay()
		}
		return s.leave()
	}
}

func (s situation) leave() step {
	switch {
	case s.expired:
		return runOut
	case s.tried >= maxCandidates:
		return giveUp
	default:
		return goElsewhere
	}
}

func (s situation) stay() step {
	if s.expired {
		return stayUnknown
	}
	return askLater
}

// approach is how a flight begins, given what is known of its key.
type approach string

const (
	startAnew   approach = "StartAnew"   // choose a cluster under the next attempt number
	askHolder   approach = "AskHolder"   // claim again from the same cluster under the same attempt
	lookUp      approach = "LookUp"      // a sandbox was answered: never claim again
	endItself   approach = "EndItself"   // a sandbox was answered, by a cluster that was forgotten since: it counts as ended
	showEnded   approach = "ShowEnded"   // answer the terminal record
	keyConflict approach = "KeyConflict" // the key stands for other parameters
)

// begin decides. The parameters of an adopted record are not known: its sandbox is compared instead, and its cluster must
// be one that the request allows.
func begin(r *ledger.Record, sameParameters, allowed, forgotten bool) approach {
	switch {
	case r == nil:
		return startAnew
	case !sameParameters && !r.Adopted:
		return keyConflict
	case r.Adopted && !allowed && (r.State != ledger.Pending || !forgotten):
		return keyConflict
	case r.State == ledger.Ended:
		return showEnded
	case r.State == ledger.Answered && forgotten:
		return endItself
	case r.State == ledger.Answered:
		return lookUp
	case r.State == ledger.Refused, forgotten:
		return startAnew
	default:
		return askHolder
	}
}

// holdsCurrent reports whether a sandbox's terminal record ends the claim, and is neither of an attempt that was given up
// nor of a Pod that ended beside the sandbox that was answered.
func holdsCurrent(r *ledger.Record, from sender, attempt int32, sandboxID string) bool {
	switch {
	case r == nil || !heldBy(r, from):
		return false
	case r.SandboxID != "":
		return r.SandboxID == sandboxID
	default:
		return r.Attempt == attempt
	}
}

// bearing is what a Pod that carries a key, or the record of one that did, means for what the hub knows of the key.
type bearing string

const (
	// itsOwn: the record speaks of it.
	itsOwn bearing = "ItsOwn"
	// unknownKey: a ledger that was lost may have answered it. It is the key's now.
	unknownKey bearing = "UnknownKey"
	// newer: the ledger knows an earlier attempt only, because it lost the later one. It is the key's now.
	newer bearing = "Newer"
	// stray: its claim ended, or moved on to a later attempt of the same ledger. It ends.
	stray bearing = "Stray"
	// beside: a ledger that was lost may have answered it, and the key has another sandbox now. It stays.
	beside bearing = "Beside"
	// unsent: this hub did not send the cluster that claim. It stays, counts for nothing, and raises an alarm (I15).
	unsent bearing = "Unsent"
)

// sender is the cluster that names a Pod's key, and what the hub may have lost about it.
type sender struct {
	cluster, uid string
	missing      bool  // a ledger was lost, and this cluster's keys may be missing in the one that followed
	epoch        int32 // of the ledger
	lastLost     int32 // the last attempt that a lost ledger can have made
}

// bearingOf decides. Within a ledger an earlier attempt was given up before the later one was made (I2). Only what a lost
// ledger can have sent to the cluster is believed without a record (I15).
func bearingOf(r *ledger.Record, from sender, attempt int32) bearing {
	switch {
	case attempt < 1:
		return unsent
	case r != nil && heldBy(r, from) && r.Attempt == attempt:
		if r.State == ledger.Ended {
			return stray
		}
		return itsOwn
	case r != nil && attempt < r.Attempt && sameLedger(r.Attempt, attempt):
		return stray
	case !from.missing || attempt > from.lastLost:
		if recovery.EpochOf(attempt) < from.epoch {
			return beside
		}
		return unsent
	case r == nil:
		return unknownKey
	case attempt > r.Attempt && mayBeOutdated(r, from.epoch):
		return newer
	default:
		return beside
	}
}

func heldBy(r *ledger.Record, from sender) bool {
	return r.Cluster == from.cluster && (r.ClusterUID == "" || r.ClusterUID == from.uid)
}

// mayBeOutdated reports whether a lost ledger can have made a later attempt than the record's. What this ledger made it
// knows, and a key that it saw ended or answered has no later attempt.
func mayBeOutdated(r *ledger.Record, epoch int32) bool {
	if r.Adopted {
		return r.State != ledger.Ended
	}
	return recovery.EpochOf(r.Attempt) < epoch && (r.State == ledger.Pending || r.State == ledger.Refused)
}

func sameLedger(a, b int32) bool { return recovery.EpochOf(a) == recovery.EpochOf(b) }

// nextAttempt follows the record's, and every one that an earlier ledger can have made.
func nextAttempt(r *ledger.Record, epoch int32) int32 {
	first := recovery.FirstAttempt(epoch)
	if r == nil {
		return first
	}
	return max(r.Attempt+1, first)
}
