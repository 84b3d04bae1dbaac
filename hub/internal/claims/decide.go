// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/recovery"
)

// maxCandidates is the number of candidates that one call tries.
const maxCandidates = 3

// dispatchOutcome is the outcome of one dispatch of a claim.
type dispatchOutcome string

const (
	granted dispatchOutcome = "Granted"
	failed  dispatchOutcome = "Failed"       // the request itself is at fault: no other cluster would do better
	refused dispatchOutcome = "Refused"      // no Pod was taken and none will be for this attempt
	stale   dispatchOutcome = "StaleSession" // nothing was tried
	notSent dispatchOutcome = "NotSent"
	unclear dispatchOutcome = "Unclear" // a Pod may or may not carry the claim
	left    dispatchOutcome = "Left"    // as unclear, because the caller has left; metrics show it separately
	// gaveUp: a Pod may carry the claim in a cluster that an operator has forgotten, so the claim may go to another cluster.
	gaveUp dispatchOutcome = "Forgotten"
	// moved: the claim waited, was withdrawn, and goes to a member with an idle Pod.
	moved dispatchOutcome = "Moved"
)

// dispatchOutcomeOf maps a dispatch's result to an outcome. A result that it does not understand is unclear, which is safe.
func dispatchOutcomeOf(answer *federationv1.Answer, err error) dispatchOutcome {
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

// situation is the input of next.
type situation struct {
	keyed        bool
	open         bool // an earlier dispatch of this attempt, perhaps of an earlier process, may have arrived
	staleRetried bool // this attempt has been retried after a stale session
	tried        int  // candidates tried so far, including this one
	expired      bool // the claim's deadline has passed
}

// step is the action that follows a dispatch.
type step string

const (
	answerCaller step = "Answer"
	failCaller   step = "Fail"      // with the worker's error
	askAgain     step = "AskAgain"  // the same cluster and attempt, at once
	askLater     step = "AskLater"  // the same cluster and attempt, after a pause
	goElsewhere  step = "Elsewhere" // next candidate, next attempt
	giveUp       step = "GiveUp"    // with the last refusal
	runOut       step = "RunOut"    // DEADLINE: certainly no registered cluster granted the claim, or it has no key
	stayUnknown  step = "Unknown"   // OUTCOME_UNKNOWN
)

// next decides what follows an outcome. A claim with a key never leaves a cluster that may hold a Pod for it.
func next(s situation, o dispatchOutcome) step {
	if o == stale && s.staleRetried {
		o = notSent // a session that changes under every call is no session
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
	case moved:
		s.tried = 0 // the candidate that queued the claim did not refuse it
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

// approach is the first action of a flight, given the record of its key.
type approach string

const (
	startAnew   approach = "StartAnew"   // choose a cluster under the next attempt number
	askHolder   approach = "AskHolder"   // claim again from the same cluster under the same attempt
	lookUp      approach = "LookUp"      // a sandbox was returned: never claim again
	endItself   approach = "EndItself"   // a sandbox was returned, and its cluster was forgotten since: it counts as ended
	showEnded   approach = "ShowEnded"   // return the terminal record
	keyConflict approach = "KeyConflict" // the key has other parameters
	quarantine  approach = "Quarantine"  // a cluster names the key without a proof, or may not serve it
)

// trust is the relation of the record's cluster to a request.
type trust struct {
	allowed   bool // the request lets it serve
	serves    bool // its operator lets it serve the request's team and Env
	forgotten bool // an operator has forgotten it
}

// beyond reports whether a key was adopted from a cluster that may not serve it (I15). An end that the hub itself recorded counts
// nevertheless.
func beyond(r *ledger.Record, serves bool) bool {
	return r.Adopted && !serves && len(r.Terminal) == 0
}

// begin decides the approach. An adopted record has no parameters: its sandbox is compared instead, and its cluster must be one that the
// request allows and that may serve it.
func begin(r *ledger.Record, sameParameters bool, cluster trust) approach {
	allowed, forgotten := cluster.allowed, cluster.forgotten
	switch {
	case r == nil:
		return startAnew
	case r.State == ledger.Unproven && forgotten:
		return startAnew
	case r.State == ledger.Unproven, beyond(r, cluster.serves) && !forgotten:
		return quarantine
	case !sameParameters && !r.Adopted:
		return keyConflict
	case r.Adopted && !allowed && (r.State != ledger.Pending || !forgotten):
		return keyConflict
	case r.State == ledger.Ended:
		return showEnded
	case r.State == ledger.Returned && forgotten:
		return endItself
	case r.State == ledger.Returned:
		return lookUp
	case r.State == ledger.Refused, forgotten:
		return startAnew
	default:
		return askHolder
	}
}

// grantRelation is the relation of a granted sandbox to the record of its key, which another replica has written in the meantime.
type grantRelation string

const (
	// stillOpen: the record waits for this very attempt.
	stillOpen grantRelation = "StillOpen"
	// recorded: the sandbox is the key's sandbox, or was.
	recorded grantRelation = "Recorded"
	// unwanted: the key has ended, or has another attempt or sandbox.
	unwanted grantRelation = "Unwanted"
)

// compareGrant compares the current record r with the record under which the sandbox was granted.
func compareGrant(r, under *ledger.Record, sandboxID string) grantRelation {
	switch {
	case r == nil:
		return unwanted
	case r.SandboxID != "" && r.SandboxID == sandboxID:
		return recorded
	case (r.State == ledger.Pending || r.State == ledger.Refused) && r.Attempt == under.Attempt && r.Cluster == under.Cluster:
		return stillOpen
	default:
		return unwanted
	}
}

const (
	// goneAfter is how long an open claim of a silent replica waits for that replica if no hint shows which replicas are alive. liveAfter is
	// how long it waits if a hint shows the replica as alive, which may be wrong.
	goneAfter = time.Minute
	liveAfter = 10 * time.Minute
)

// resumes reports whether to resume an open claim that another replica pursues or pursued. seen is how long its entry has not changed.
// Resuming too early costs one call: the worker joins both.
func resumes(replica string, seen time.Duration, live func(replica string) bool) bool {
	switch {
	case replica == "": // written by a hub of one replica
		return true
	case live == nil:
		return seen >= goneAfter
	case live(replica):
		return seen >= liveAfter
	default:
		return true
	}
}

// holdsCurrent reports whether a sandbox's terminal record ends the claim. It does not if the sandbox belongs to an abandoned attempt, or
// if another sandbox was returned.
func holdsCurrent(r *ledger.Record, from sender, attempt int32, sandboxID string) bool {
	switch {
	case r == nil || !heldBy(r, from) || r.State == ledger.Unproven:
		return false
	case r.SandboxID != "":
		return r.SandboxID == sandboxID
	default:
		return r.Attempt == attempt
	}
}

// bearing is the meaning of a Pod with a key, or of its terminal record, for the hub's record of the key. The text of each value speaks of
// that Pod.
type bearing string

const (
	// itsOwn: the record names this attempt of this cluster.
	itsOwn bearing = "ItsOwn"
	// unknownKey: a lost ledger may have returned it. The hub adopts it for the key.
	unknownKey bearing = "UnknownKey"
	// newer: the ledger has only an earlier attempt, because it lost the later one. The hub adopts it for the key.
	newer bearing = "Newer"
	// stray: its claim ended, or moved to a later attempt of the same ledger. The hub ends it.
	stray bearing = "Stray"
	// late: its attempt was refused, and a write from before the refusal took effect afterwards. The hub closes the attempt and ends it.
	late bearing = "Late"
	// beside: a lost ledger may have returned it, and the key has another sandbox now. The hub keeps it.
	beside bearing = "Beside"
	// unproven: a lost ledger may have returned it, or the cluster made it up. The key is neither returned nor claimed.
	unproven bearing = "Unproven"
	// unsent: this hub did not send the claim to the cluster. The hub keeps it, ignores it, and raises an alarm (I15).
	unsent bearing = "Unsent"
	// damaged: the ledger's records about it cannot be read. The hub keeps it, and its key is neither returned nor claimed (I2).
	damaged bearing = "Damaged"
)

// sender is the cluster that names a key, and what the hub may have lost about that cluster.
type sender struct {
	cluster, uid string
	missing      bool  // a ledger was lost, and this cluster's keys may be missing in its replacement
	epoch        int32 // the ledger's epoch
	lastLost     int32 // the last attempt that a lost ledger can have created
}

// bearingOf decides the bearing. Within a ledger an earlier attempt was abandoned before the later one was created (I2). Without a record,
// the hub believes only an attempt that a lost ledger can have sent to the cluster, and only with its proof (I15).
func bearingOf(r *ledger.Record, from sender, attempt int32, proof recovery.Verdict) bearing {
	switch {
	case attempt < 1:
		return unsent
	case r != nil && r.State == ledger.Unproven:
		return besideUnproven(from, attempt, proof)
	case r != nil && heldBy(r, from) && r.Attempt == attempt:
		switch r.State {
		case ledger.Ended:
			return stray
		case ledger.Refused:
			return late
		default:
			return itsOwn
		}
	case r != nil && attempt < r.Attempt && sameLedger(r.Attempt, attempt):
		return stray
	case !from.missing || attempt > from.lastLost:
		if recovery.EpochOf(attempt) < from.epoch {
			return beside
		}
		return unsent
	case proof == recovery.Forged:
		return unsent
	case r == nil && proof == recovery.Unproven:
		return unproven
	case r == nil:
		return unknownKey
	case attempt > r.Attempt && mayBeOutdated(r, from.epoch):
		if proof != recovery.Unproven {
			return newer
		}
		if r.Adopted {
			return beside // the record has a proof
		}
		return unproven
	default:
		return beside
	}
}

// besideUnproven decides the bearing for a key in quarantine: only a proof moves the key.
func besideUnproven(from sender, attempt int32, proof recovery.Verdict) bearing {
	switch {
	case proof == recovery.Forged || attempt > from.lastLost:
		return unsent
	case !from.missing || proof == recovery.Unproven:
		return beside
	default:
		return newer
	}
}

func heldBy(r *ledger.Record, from sender) bool {
	return r.Cluster == from.cluster && (r.ClusterUID == "" || r.ClusterUID == from.uid)
}

// mayBeOutdated reports whether a lost ledger can have created a later attempt than the record's. This ledger has its own
// attempts, and a key that it recorded as ended or returned has no later attempt.
func mayBeOutdated(r *ledger.Record, epoch int32) bool {
	if r.Adopted {
		return r.State != ledger.Ended
	}
	return recovery.EpochOf(r.Attempt) < epoch && (r.State == ledger.Pending || r.State == ledger.Refused)
}

func sameLedger(a, b int32) bool { return recovery.EpochOf(a) == recovery.EpochOf(b) }

// nextAttempt returns an attempt number that is higher than the record's and than every one that an earlier ledger can have created.
func nextAttempt(r *ledger.Record, epoch int32) int32 {
	first := recovery.FirstAttempt(epoch)
	if r == nil {
		return first
	}
	return max(r.Attempt+1, first)
}
