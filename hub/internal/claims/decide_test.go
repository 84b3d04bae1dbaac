// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

func TestJudge(t *testing.T) {
	sandbox := granted1(&sandboxv1.Sandbox{Id: "x"})
	for name, tc := range map[string]struct {
		answer *federationv1.Answer
		err    error
		want   outcome
	}{
		"a sandbox":            {sandbox, nil, granted},
		"nothing was sent":     {nil, fmt.Errorf("wrapped: %w", ErrNotConnected), notSent},
		"the stream broke":     {nil, errors.New("broke"), unclear},
		"done without sandbox": {&federationv1.Answer{Disposition: federationv1.Disposition_DONE}, nil, unclear},
		"the request's fault":  {failure(federationv1.Disposition_DONE, problem.Invalid), nil, failed},
		"refused":              {failure(federationv1.Disposition_REFUSED, problem.QueueFull), nil, refused},
		"stale":                {failure(federationv1.Disposition_STALE_SESSION, problem.Unavailable), nil, stale},
		"unclear":              {failure(federationv1.Disposition_UNCLEAR, problem.Internal), nil, unclear},
		"of a newer worker":    {failure(99, problem.Internal), nil, unclear},
		"no answer at all":     {nil, nil, unclear},
	} {
		if got := judge(tc.answer, tc.err); got != tc.want {
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
		o    outcome
		want step
	}{
		{"granted", fresh(true), granted, answerCaller},
		{"granted at the last moment", with(open, expired), granted, answerCaller},
		{"failed", fresh(false), failed, failCaller},
		{"refused", fresh(true), refused, goElsewhere},
		{"refused by the holder of old", open, refused, goElsewhere},
		{"refused by the third", with(fresh(true), last), refused, giveUp},
		{"refused too late", with(fresh(true), expired), refused, runOut},
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
	for _, o := range []outcome{notSent, unclear, stale} {
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
		name string
		r    *record
		same bool
		want approach
	}{
		{"unknown key", nil, false, startAnew},
		{"other parameters", &record{State: statePending}, false, keyConflict},
		{"other parameters after the end", &record{State: stateEnded}, false, keyConflict},
		{"a dispatch may be out", &record{State: statePending}, true, askHolder},
		{"answered once", &record{State: stateAnswered}, true, lookUp},
		{"all refused", &record{State: stateRefused}, true, startAnew},
		{"ended", &record{State: stateEnded}, true, showEnded},
		{"a state of a newer build", &record{State: "later"}, true, askHolder},
	} {
		if got := begin(tc.r, tc.same); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestStrays(t *testing.T) {
	pending := &record{Cluster: "a", Attempt: 2, State: statePending}
	over := &record{Cluster: "a", Attempt: 2, State: stateEnded}
	for _, tc := range []struct {
		name    string
		r       *record
		cluster string
		attempt int32
		want    bool
	}{
		{"no record proves nothing", nil, "a", 1, false},
		{"the holder", pending, "a", 2, false},
		{"an attempt that was given up", pending, "b", 1, true},
		{"an earlier attempt at the same cluster", pending, "a", 1, true},
		{"an attempt this hub has not made", pending, "b", 3, false},
		{"ended", over, "a", 2, true},
		{"ended, an attempt this hub has not made", over, "a", 3, false},
		{"the same attempt elsewhere", pending, "b", 2, false},
	} {
		if got := isStray(tc.r, tc.cluster, tc.attempt); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}
