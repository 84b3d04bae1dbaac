// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"testing"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

func TestDispatchOutcomeOf(t *testing.T) {
	sandbox := workertest.Granted(&sandboxv1.Sandbox{Id: "x"})
	for name, tc := range map[string]struct {
		answer *federationv1.Answer
		err    error
		want   dispatchOutcome
	}{
		"a sandbox":            {sandbox, nil, granted},
		"nothing was sent":     {nil, fmt.Errorf("wrapped: %w", calls.ErrNotConnected), notSent},
		"the stream broke":     {nil, errors.New("broke"), unclear},
		"done without sandbox": {&federationv1.Answer{Disposition: federationv1.Disposition_DONE}, nil, unclear},
		"the request's fault":  {workertest.Failure(federationv1.Disposition_DONE, problem.Invalid), nil, failed},
		"refused":              {workertest.Failure(federationv1.Disposition_REFUSED, problem.QueueFull), nil, refused},
		"stale":                {workertest.Failure(federationv1.Disposition_STALE_SESSION, problem.Unavailable), nil, stale},
		"unclear":              {workertest.Failure(federationv1.Disposition_UNCLEAR, problem.Internal), nil, unclear},
		"of a newer worker":    {workertest.Failure(99, problem.Internal), nil, unclear},
		"no answer at all":     {nil, nil, unclear},
	} {
		if got := dispatchOutcomeOf(tc.answer, tc.err); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestI2NextNeverLeavesAClusterThatMayHoldThePod is the whole table of what follows an outcome.
func TestI2NextNeverLeavesAClusterThatMayHoldThePod(t *testing.T) {
	fresh := func(keyed bool) situation { return situation{keyed: keyed, tried: 1} }
	open := situation{keyed: true, open: true, tried: 1}
	with := func(s situation, change func(*situation)) situation { change(&s); return s }
	expired := func(s *situation) { s.expired = true }
	last := func(s *situation) { s.tried = maxCandidates }
	again := func(s *situation) { s.staleRetried = true }
	for _, tc := range []struct {
		name string
		s    situation
		o    dispatchOutcome
		want step
	}{
		{"granted", fresh(true), granted, answerCaller},
		{"granted at the last moment", with(open, expired), granted, answerCaller},
		{"failed", fresh(false), failed, failCaller},
		{"refused", fresh(true), refused, goElsewhere},
		{"refused by the holder of old", open, refused, goElsewhere},
		{"refused by the third", with(fresh(true), last), refused, giveUp},
		{"refused too late", with(fresh(true), expired), refused, runOut},
		{"moved", fresh(true), moved, goElsewhere},
		{"moved by the third", with(fresh(false), last), moved, goElsewhere},
		{"moved too late", with(fresh(true), expired), moved, runOut},
		{"stale", fresh(true), stale, askAgain},
		{"stale twice", with(fresh(true), again), stale, goElsewhere},
		{"stale twice, may be held", with(open, again), stale, askLater},
		{"not sent, never sent before", fresh(true), notSent, goElsewhere},
		{"not sent, sent before", open, notSent, askLater},
		{"not sent, sent before, too late", with(open, expired), notSent, stayUnknown},
		{"not sent, no key", fresh(false), notSent, goElsewhere},
		{"not sent to the third, no key", with(fresh(false), last), notSent, giveUp},
		{"unclear", fresh(true), unclear, askLater},
		{"unclear at the third", with(fresh(true), last), unclear, askLater},
		{"unclear too late", with(fresh(true), expired), unclear, stayUnknown},
		{"unclear, no key", fresh(false), unclear, goElsewhere},
		{"unclear too late, no key", with(fresh(false), expired), unclear, runOut},
	} {
		if got := next(tc.s, tc.o); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	for _, o := range []dispatchOutcome{notSent, unclear, stale} {
		for tried := range maxCandidates + 2 {
			for _, s := range []situation{{tried: tried}, {tried: tried, expired: true}, {tried: tried, staleRetried: true}} {
				s.keyed, s.open = true, true
				if got := next(s, o); got == goElsewhere || got == giveUp || got == runOut {
					t.Errorf("%s in %+v: %s leaves a cluster that may hold the Pod", o, s, got)
				}
			}
		}
	}
}

func TestI2Begin(t *testing.T) {
	for _, tc := range []struct {
		name            string
		r               *ledger.Record
		same, forgotten bool
		want            approach
	}{
		{"unknown key", nil, false, false, startAnew},
		{"other parameters", &ledger.Record{State: ledger.Pending}, false, false, keyConflict},
		{"other parameters after the end", &ledger.Record{State: ledger.Ended}, false, false, keyConflict},
		{"a dispatch may be out", &ledger.Record{State: ledger.Pending}, true, false, askHolder},
		{"a dispatch may be out to a cluster that was forgotten", &ledger.Record{State: ledger.Pending}, true, true, startAnew},
		{"returned once", &ledger.Record{State: ledger.Returned}, true, false, lookUp},
		{"returned by a cluster that was forgotten", &ledger.Record{State: ledger.Returned}, true, true, endItself},
		{"all refused", &ledger.Record{State: ledger.Refused}, true, false, startAnew},
		{"ended", &ledger.Record{State: ledger.Ended}, true, false, showEnded},
		{"ended, in a cluster that was forgotten", &ledger.Record{State: ledger.Ended}, true, true, showEnded},
		{"a state of a newer build", &ledger.Record{State: "later"}, true, false, askHolder},
		{"adopted with its Pod", &ledger.Record{State: ledger.Returned, Adopted: true}, false, false, lookUp},
		{"adopted under way", &ledger.Record{State: ledger.Pending, Adopted: true}, false, false, askHolder},
	} {
		if got := begin(tc.r, tc.same, trust{true, true, tc.forgotten}); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	// What was adopted in a cluster that the request forbids is not the request's (I15); this hub's own choice was checked.
	for want, r := range map[approach]*ledger.Record{
		keyConflict: {State: ledger.Returned, Adopted: true}, lookUp: {State: ledger.Returned}, askHolder: {State: ledger.Pending},
	} {
		if got := begin(r, true, trust{serves: true}); got != want {
			t.Errorf("%+v in a forbidden cluster: %s, want %s", r, got, want)
		}
	}
	// What was adopted beyond what its cluster may serve counts for nothing, until the hub has ended it (I15).
	for _, tc := range []struct {
		r         ledger.Record
		forgotten bool
		want      approach
	}{
		{ledger.Record{State: ledger.Returned, Adopted: true}, false, quarantine},
		{ledger.Record{State: ledger.Pending, Adopted: true}, false, quarantine},
		{ledger.Record{State: ledger.Ended, Adopted: true}, false, quarantine},
		{ledger.Record{State: ledger.Ended, Adopted: true, Terminal: []byte("x")}, false, showEnded},
		{ledger.Record{State: ledger.Returned, Adopted: true}, true, endItself},
		{ledger.Record{State: ledger.Returned}, false, lookUp},
	} {
		if got := begin(&tc.r, true, trust{allowed: true, forgotten: tc.forgotten}); got != tc.want {
			t.Errorf("%+v in a cluster that may not serve it, forgotten %t: %s, want %s", tc.r, tc.forgotten, got, tc.want)
		}
	}
	for _, tc := range []struct {
		state     ledger.State
		forgotten bool
		want      approach
	}{
		{ledger.Pending, true, startAnew}, {ledger.Pending, false, keyConflict}, {ledger.Returned, true, keyConflict},
	} {
		if got := begin(&ledger.Record{State: tc.state, Adopted: true}, true, trust{serves: true, forgotten: tc.forgotten}); got != tc.want {
			t.Errorf("adopted %s in a forbidden cluster, forgotten %t: %s, want %s", tc.state, tc.forgotten, got, tc.want)
		}
	}
}

func TestI2HoldsCurrent(t *testing.T) {
	returned := &ledger.Record{Cluster: "a", ClusterUID: "u", Attempt: 2, SandboxID: "s"}
	underWay := &ledger.Record{Cluster: "a", Attempt: 2}
	for _, tc := range []struct {
		name    string
		r       *ledger.Record
		from    sender
		attempt int32
		sandbox string
		want    bool
	}{
		{"the sandbox that was returned", returned, sender{cluster: "a", uid: "u"}, 2, "s", true},
		{"it, by whatever attempt", returned, sender{cluster: "a", uid: "u"}, 1, "s", true},
		{"another beside it", returned, sender{cluster: "a", uid: "u"}, 2, "other", false},
		{"it, of another cluster", returned, sender{cluster: "b", uid: "u"}, 2, "s", false},
		{"it, of another cluster of the name", returned, sender{cluster: "a", uid: "v"}, 2, "s", false},
		{"the attempt under way", underWay, sender{cluster: "a"}, 2, "s", true},
		{"an attempt that was given up", underWay, sender{cluster: "a"}, 1, "s", false},
		{"of no key", nil, sender{cluster: "a"}, 2, "s", false},
	} {
		if got := holdsCurrent(tc.r, tc.from, tc.attempt, tc.sandbox); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// TestI2BearingOf is the rule of what a Pod with a key means: never two that are returned for the key, none ended that a lost
// ledger may have returned, and none believed that this hub did not send to its cluster (I15).
func TestI2BearingOf(t *testing.T) {
	lost, own := recovery.FirstAttempt(0), recovery.FirstAttempt(1)
	heard := func(cluster string) sender { return sender{cluster: cluster, uid: "u", epoch: 1, lastLost: own - 1} }
	missing := func(cluster string) sender { s := heard(cluster); s.missing = true; return s }
	pending := func(attempt int32) *ledger.Record {
		return &ledger.Record{Cluster: "a", Attempt: attempt, State: ledger.Pending}
	}
	returned := func(attempt int32) *ledger.Record {
		return &ledger.Record{Cluster: "a", Attempt: attempt, State: ledger.Returned}
	}
	ended := &ledger.Record{Cluster: "a", Attempt: 2, State: ledger.Ended}
	adopted := &ledger.Record{Cluster: "a", Attempt: 1, State: ledger.Returned, Adopted: true}
	for _, tc := range []struct {
		name    string
		r       *ledger.Record
		from    sender
		attempt int32
		want    bearing
	}{
		{"the holder", pending(2), heard("a"), 2, itsOwn},
		{"the holder, which was returned", returned(2), missing("a"), 2, itsOwn},
		{"another cluster of the holder's name", &ledger.Record{Cluster: "a", ClusterUID: "before", Attempt: own, State: ledger.Pending},
			heard("a"), own, unsent},
		{"an attempt that was given up", pending(2), heard("b"), 1, stray},
		{"an earlier attempt at the same cluster", returned(2), missing("a"), 1, stray},
		{"ended", ended, heard("a"), 2, stray},
		{"refused", &ledger.Record{Cluster: "a", Attempt: 2, State: ledger.Refused}, heard("a"), 2, late},

		{"a key of a lost ledger", nil, missing("a"), lost, unknownKey},
		{"the last that a lost ledger can have made", nil, missing("a"), own - 1, unknownKey},
		{"a later attempt of our own epoch", pending(own), sender{cluster: "b", uid: "u", epoch: 1, missing: true, lastLost: own + 9}, own + 1,
			beside},
		{"the same attempt elsewhere", pending(2), missing("b"), 2, beside},
		{"a restored record's later attempt", pending(2), missing("b"), 3, newer},
		{"a later attempt after every refusal", &ledger.Record{Cluster: "a", Attempt: 2, State: ledger.Refused}, missing("b"), 3, newer},
		{"nothing follows an answer", returned(2), missing("b"), 3, beside},
		{"nothing follows an end", ended, missing("b"), 3, beside},
		{"two clusters, the later attempt second", adopted, missing("b"), 2, newer},
		{"two clusters, the later attempt first", &ledger.Record{Cluster: "b", Attempt: 2, State: ledger.Returned, Adopted: true}, missing("a"),
			1, stray},
		{"a lost ledger's Pod beside our answer", returned(own), missing("b"), lost, beside},
		{"a lost ledger's Pod beside our dispatch", pending(own), missing("b"), lost, beside},

		{"an unknown key, once its cluster was heard", nil, heard("a"), own, unsent},
		{"a lost ledger's, once its cluster was heard", nil, heard("a"), lost, beside},
		{"a later attempt than ours", pending(own), heard("b"), own + 1, unsent},
		{"a later attempt than ours, from one that was not heard", pending(own), missing("b"), own + 1, unsent},
		{"an attempt of ours, from one that was not heard", nil, missing("b"), own, unsent},
		{"a later epoch than any", nil, missing("b"), recovery.FirstAttempt(212), unsent},
		{"a later epoch than any, of a restored record", pending(2), missing("b"), 1<<31 - 1, unsent},
		{"no attempt", nil, missing("a"), 0, unsent},
		{"less than none", pending(2), missing("a"), -1 << 31, unsent},
	} {
		if got := bearingOf(tc.r, tc.from, tc.attempt, recovery.Proven); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestI2BearingWithoutProof: a key that only its cluster names is neither returned nor claimed, and what the cluster made up is ignored.
func TestI2BearingWithoutProof(t *testing.T) {
	lost, own := recovery.FirstAttempt(0), recovery.FirstAttempt(1)
	heard := sender{cluster: "b", uid: "u", epoch: 1, lastLost: own - 1}
	missing := heard
	missing.missing = true
	pending := &ledger.Record{Cluster: "a", Attempt: 2, State: ledger.Pending}
	adopted := &ledger.Record{Cluster: "a", Attempt: 1, State: ledger.Returned, Adopted: true}
	quarantined := &ledger.Record{Cluster: "a", Attempt: 1, State: ledger.Unproven}
	for _, tc := range []struct {
		name    string
		r       *ledger.Record
		from    sender
		attempt int32
		proof   recovery.Verdict
		want    bearing
	}{
		{"a key of a lost ledger", nil, missing, lost, recovery.Unproven, unproven},
		{"a made-up key", nil, missing, lost, recovery.Forged, unsent},
		{"a later attempt than a restored record's", pending, missing, 3, recovery.Unproven, unproven},
		{"the same attempt elsewhere", pending, missing, 2, recovery.Unproven, beside},
		{"a later attempt than an adopted record's", adopted, missing, 2, recovery.Unproven, beside},
		{"a later attempt that was made up", pending, missing, 3, recovery.Forged, unsent},

		{"beside one in quarantine, with a proof", quarantined, missing, 2, recovery.Proven, newer},
		{"beside one in quarantine, with a proof of the last attempt", quarantined, missing, own - 1, recovery.Proven, newer},
		{"beside one in quarantine, without", quarantined, missing, 2, recovery.Unproven, beside},
		{"beside one in quarantine, once its cluster was heard", quarantined, heard, 2, recovery.Proven, beside},
		{"beside one in quarantine, made up", quarantined, missing, 2, recovery.Forged, unsent},
		{"beside one in quarantine, later than any attempt", quarantined, missing, own, recovery.Proven, unsent},
	} {
		if got := bearingOf(tc.r, tc.from, tc.attempt, tc.proof); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestI2CompareGrant: a granted sandbox is returned only if the key's record still waits for its attempt, or names it.
func TestI2CompareGrant(t *testing.T) {
	under := &ledger.Record{Cluster: "a", Attempt: 2, State: ledger.Pending}
	for _, tc := range []struct {
		name string
		r    *ledger.Record
		want grantRelation
	}{
		{"no record", nil, unwanted},
		{"the record under which it was granted", under, stillOpen},
		{"refused meanwhile, the same attempt", &ledger.Record{Cluster: "a", Attempt: 2, State: ledger.Refused}, stillOpen},
		{"a later attempt", &ledger.Record{Cluster: "a", Attempt: 3, State: ledger.Pending}, unwanted},
		{"a later attempt, refused", &ledger.Record{Cluster: "a", Attempt: 3, State: ledger.Refused}, unwanted},
		{"the same attempt at another cluster", &ledger.Record{Cluster: "b", Attempt: 2, State: ledger.Pending}, unwanted},
		{"ended", &ledger.Record{Cluster: "a", Attempt: 2, State: ledger.Ended}, unwanted},
		{"returned", &ledger.Record{Cluster: "a", Attempt: 2, State: ledger.Returned, SandboxID: "s"}, recorded},
		{"returned, and ended since", &ledger.Record{Cluster: "a", Attempt: 2, State: ledger.Ended, SandboxID: "s"}, recorded},
		{"returned with another sandbox", &ledger.Record{Cluster: "a", Attempt: 2, State: ledger.Returned, SandboxID: "other"}, unwanted},
	} {
		if got := compareGrant(tc.r, under, "s"); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	if got := compareGrant(&ledger.Record{Cluster: "a", Attempt: 3, State: ledger.Pending}, under, ""); got != unwanted {
		t.Errorf("a sandbox without an id is %s for a record without one, want %s", got, unwanted)
	}
}

// TestResumes: an open claim of another replica is resumed once that replica is gone, as far as the hint shows, and late if it shows none.
func TestResumes(t *testing.T) {
	alive := func(replica string) bool { return replica == "alive" }
	for _, tc := range []struct {
		name, replica string
		seen          time.Duration
		live          func(string) bool
		want          bool
	}{
		{"of a hub of one replica", "", 0, nil, true},
		{"of a hub of one replica, beside a hint", "", 0, func(string) bool { return true }, true},
		{"no hint, a moment ago", "other", time.Minute - 1, nil, false},
		{"no hint, a minute ago", "other", time.Minute, nil, true},
		{"a live replica, a while ago", "alive", 10*time.Minute - 1, alive, false},
		{"a live replica, ten minutes ago", "alive", 10 * time.Minute, alive, true},
		{"a replica that is gone", "gone", 0, alive, true},
	} {
		if got := resumes(tc.replica, tc.seen, tc.live); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

func TestAttemptsFollowThoseOfALostLedger(t *testing.T) {
	for _, tc := range []struct {
		r     *ledger.Record
		epoch int32
		want  int32
	}{
		{nil, 0, 1},
		{&ledger.Record{Attempt: 1}, 0, 2},
		{nil, 2, 20_000_001},
		{&ledger.Record{Attempt: 7}, 1, 10_000_001},
		{&ledger.Record{Attempt: 10_000_001}, 1, 10_000_002},
	} {
		if got := nextAttempt(tc.r, tc.epoch); got != tc.want {
			t.Errorf("after %+v in epoch %d: %d, want %d", tc.r, tc.epoch, got, tc.want)
		}
	}
}
