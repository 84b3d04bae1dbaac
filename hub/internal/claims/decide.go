// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// ErrNotConnected is a dispatch of which nothing was sent. Every other error of a Dispatcher leaves the outcome unclear.
var ErrNotConnected = errors.New("the cluster is not connected")

// maxCandidates is how many candidates one call tries.
const maxCandidates = 3

// outcome is what one dispatch of a claim came to.
type outcome string

const (
	granted outcome = "Granted"
	failed  outcome = "Failed"       // by the request's own fault: no other cluster would do better
	refused outcome = "Refused"      // no Pod was taken and none will be for this attempt
	stale   outcome = "StaleSession" // nothing was looked at
	notSent outcome = "NotSent"
	unclear outcome = "Unclear" // a Pod may or may not carry the claim
)

// judge reads a dispatch's result. Whatever is not understood is unclear, which is the safe side.
func judge(answer *federationv1.Answer, err error) outcome {
	switch {
	case errors.Is(err, ErrNotConnected):
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
	runOut       step = "RunOut"    // DEADLINE: certainly nothing was granted, or nobody can ask for it any more
	stayUnknown  step = "Unknown"   // OUTCOME_UNKNOWN
)

// next decides what follows an outcome. For a keyed claim it never leaves a cluster that may hold a Pod for it.
func next(s situation, o outcome) step {
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
	case refused:
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
	showEnded   approach = "ShowEnded"   // answer the terminal record
	keyConflict approach = "KeyConflict" // the key stands for other parameters
)

func begin(r *record, sameParameters bool) approach {
	switch {
	case r == nil:
		return startAnew
	case !sameParameters:
		return keyConflict
	case r.State == stateEnded:
		return showEnded
	case r.State == stateAnswered:
		return lookUp
	case r.State == stateRefused:
		return startAnew
	default:
		return askHolder
	}
}

// holdsCurrent reports whether a sandbox's terminal record ends the claim, and is neither of an attempt that was given up
// nor of a Pod that ended beside the sandbox that was answered.
func holdsCurrent(r *record, cluster string, attempt int32, sandboxID string) bool {
	switch {
	case r == nil || r.Cluster != cluster:
		return false
	case r.SandboxID != "":
		return r.SandboxID == sandboxID
	default:
		return r.Attempt == attempt
	}
}

// isStray reports whether a live Pod that a worker reports for a key must go: its claim ended, or moved on to a later
// attempt. A key without a record, or a Pod of an attempt that this hub has not made, proves nothing (I5, I6).
func isStray(r *record, cluster string, attempt int32) bool {
	switch {
	case r == nil || attempt > r.Attempt:
		return false
	case attempt < r.Attempt:
		return true
	default:
		return r.Cluster == cluster && r.State == stateEnded
	}
}
