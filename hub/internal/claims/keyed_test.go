// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

type claimHook = func(context.Context, *federationv1.ClaimCall, func() *federationv1.Answer) (*federationv1.Answer, error)

// hangs is a worker that answers no claim.
func hangs(ctx context.Context, _ *federationv1.ClaimCall, _ func() *federationv1.Answer) (*federationv1.Answer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// loseAnswer carries the claim out and breaks the stream under its answer.
func loseAnswer(_ context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
	carryOut()
	return nil, errBroken
}

// refuse refuses, and remembers that it did.
func refuse(w *worker, reason problem.Reason) claimHook {
	return func(_ context.Context, c *federationv1.ClaimCall, _ func() *federationv1.Answer) (*federationv1.Answer, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.refused[c.GetKeyHash()] = c.GetAttempt()
		return failure(federationv1.Disposition_REFUSED, reason), nil
	}
}

func TestI2RecordIsDurableBeforeTheDispatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		var seen *record
		f.workers["east"].onClaim = func(_ context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			seen = f.record("k")
			if c.GetKeyHash() != keyHash("", "default", "k") {
				t.Errorf("dispatched key hash %q", c.GetKeyHash())
			}
			return carryOut(), nil
		}
		f.create(request("k"))
		if seen == nil || seen.Cluster != "east" || seen.Pool != "pool" || seen.Attempt != 1 || seen.State != statePending {
			t.Fatalf("at the time of the dispatch the store held %+v", seen)
		}
		if want := time.Now().Add(30 * time.Second); seen.Deadline.Sub(want).Abs() > time.Second {
			t.Errorf("deadline %s, want about %s", seen.Deadline, want)
		}
	})
}

func TestI2SameKeySameSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		first := f.create(request("k"))
		for range 3 {
			f.restart()
			if again := f.create(request("k")); again.GetId() != first.GetId() {
				t.Fatalf("%s, then %s", first.GetId(), again.GetId())
			}
		}
		if n := f.workers["east"].count() + f.workers["west"].count(); n != 1 {
			t.Fatalf("%d sandboxes for one key", n)
		}
	})
}

// TestI2HubDiesAfterTheDispatch covers the points "after the write, after dispatch, after the answer" of the table.
func TestI2HubDiesAfterTheDispatch(t *testing.T) {
	for name, carriedOut := range map[string]bool{"before the worker acts": false, "after the worker acted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, map[string]int32{"east": 5, "west": 5})
				east := f.workers["east"]
				east.onClaim = func(ctx context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
					if carriedOut {
						carryOut()
					}
					<-ctx.Done() // the hub ends here
					return nil, ctx.Err()
				}
				go func() { _, _ = f.hub.Create(context.Background(), request("k", prefer("east"))) }()
				synctest.Wait()
				f.restart()
				east.onClaim = nil
				got := f.create(request("k", prefer("east")))
				if got.GetClusterId() != "east" {
					t.Fatalf("answered by %s", got.GetClusterId())
				}
				if diff := cmp.Diff([]string{"k/1", "k/1"}, east.claims()); diff != "" {
					t.Errorf("claims at east (-want +got):\n%s", diff)
				}
				if n := east.count() + f.workers["west"].count(); n != 1 {
					t.Fatalf("%d sandboxes for one key", n)
				}
			})
		})
	}
}

func TestI2RetriesJoinTheFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		gate := make(chan struct{})
		hold := func(_ context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			<-gate
			return carryOut(), nil
		}
		f.workers["east"].onClaim, f.workers["west"].onClaim = hold, hold

		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.hub.Create(impatient, request("k"))
		wantReason(t, err, problem.Deadline)
		if problem.FromError(err).ClaimKey != "k" {
			t.Errorf("the error does not name its claim key: %v", err)
		}

		ids := make([]string, 20)
		var callers sync.WaitGroup
		for i := range ids {
			callers.Go(func() {
				s, err := f.hub.Create(t.Context(), request("k"))
				if err != nil {
					t.Error(err)
				}
				ids[i] = s.GetId()
			})
		}
		synctest.Wait()
		close(gate)
		callers.Wait()
		slices.Sort(ids)
		if ids = slices.Compact(ids); len(ids) != 1 {
			t.Errorf("answers %v", ids)
		}
		if n := len(f.workers["east"].claims()) + len(f.workers["west"].claims()); n != 1 {
			t.Errorf("%d dispatches for one flight", n)
		}
	})
}

// TestI2JoinersShareTheFirstDeadline: a retry does not prolong the claim that it joins.
func TestI2JoinersShareTheFirstDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		f.workers["east"].onClaim = hangs
		began := time.Now()
		go func() { _, _ = f.hub.Create(context.Background(), request("k")) }()
		time.Sleep(20 * time.Second)
		_, err := f.hub.Create(t.Context(), request("k"))
		wantReason(t, err, problem.OutcomeUnknown)
		if took := time.Since(began); took > 30*time.Second+grace {
			t.Errorf("the joiner was answered after %s", took)
		}
	})
}

func TestI2UnclearStaysWithItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		east, west := f.workers["east"], f.workers["west"]
		east.onClaim = loseAnswer
		_, err := f.hub.Create(t.Context(), request("k", prefer("east")))
		wantReason(t, err, problem.OutcomeUnknown)
		if e := problem.FromError(err); e.ClaimKey != "k" || e.RetryAfter == 0 {
			t.Errorf("error %+v gives no claim key or no advice", e)
		}
		east.setConnected(false)
		_, err = f.hub.Create(t.Context(), request("k", prefer("east")))
		wantReason(t, err, problem.OutcomeUnknown)
		if n := len(west.claims()); n != 0 {
			t.Fatalf("west was asked %d times while east may hold the key", n)
		}
		east.setConnected(true)
		east.onClaim = nil
		if got := f.create(request("k", prefer("east"))); got.GetClusterId() != "east" || east.count() != 1 {
			t.Fatalf("%v, %d sandboxes", got, east.count())
		}
	})
}

func TestAnUnclearOutcomeThatClearsIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		var calls int
		f.workers["east"].onClaim = func(ctx context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			if calls++; calls < 4 {
				return loseAnswer(ctx, c, carryOut)
			}
			return carryOut(), nil
		}
		f.create(request("k"))
		if n := f.workers["east"].count(); n != 1 {
			t.Fatalf("%d sandboxes", n)
		}
	})
}

func TestI2OnlyARefusalOrNothingSentGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"a": 5, "b": 5, "c": 5, "d": 5})
		f.workers["a"].onClaim = refuse(f.workers["a"], problem.QueueFull)
		f.workers["b"].setConnected(false)
		got := f.create(request("k", prefer("a", "b", "c")))
		if r := f.record("k"); got.GetClusterId() != "c" || r.Attempt != 3 || r.Cluster != "c" {
			t.Fatalf("%v, record %+v", got, r)
		}
		if diff := cmp.Diff([]string{"k/3"}, f.workers["c"].claims()); diff != "" {
			t.Error(diff)
		}
		outcomes := map[string]string{}
		for _, c := range got.GetDecision().GetCandidates() {
			outcomes[c.GetClusterId()] = c.GetOutcome()
		}
		want := map[string]string{
			"a": "Refused: QUEUE_FULL: the worker says QUEUE_FULL", "b": "NotSent: the cluster is not connected: b", "c": "Granted", "d": "",
		}
		if diff := cmp.Diff(want, outcomes); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
	})
}

func TestAtMostThreeCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := map[string]int32{"a": 5, "b": 5, "c": 5, "d": 5, "e": 5}
		f := newFederation(t, idle)
		for _, w := range f.workers {
			w.onClaim = refuse(w, problem.QueueFull)
		}
		for _, key := range []string{"", "k"} {
			_, err := f.hub.Create(t.Context(), request(key))
			wantReason(t, err, problem.QueueFull)
		}
		asked := 0
		for _, w := range f.workers {
			asked += len(w.claims())
		}
		if asked != 2*maxCandidates {
			t.Errorf("%d dispatches for two claims", asked)
		}
		// A later retry starts anew, under a new attempt, at whoever has room now.
		for _, w := range f.workers {
			w.onClaim = nil
		}
		f.create(request("k"))
		if r := f.record("k"); r.Attempt != maxCandidates+1 {
			t.Errorf("the retry ran under attempt %d", r.Attempt)
		}
	})
}

func TestAStaleSessionIsAskedOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		east := f.workers["east"]
		var calls int
		east.onClaim = func(_ context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			if calls++; calls == 1 {
				return failure(federationv1.Disposition_STALE_SESSION, problem.Unavailable), nil
			}
			return carryOut(), nil
		}
		for _, key := range []string{"k", ""} {
			calls = 0
			if got := f.create(request(key, prefer("east"))); got.GetClusterId() != "east" || calls != 2 {
				t.Errorf("key %q: %s after %d calls", key, got.GetClusterId(), calls)
			}
		}
		if r := f.record("k"); r.Attempt != 1 {
			t.Errorf("attempt %d: a stale session looked at nothing", r.Attempt)
		}
	})
}

// TestI2AnAnsweredKeyIsNeverClaimedAgain: a cluster that has lost its Pods and its memory gets no second chance.
func TestI2AnAnsweredKeyIsNeverClaimedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		first := f.create(request("k"))
		f.restart()
		f.workers["east"].forget()
		got := f.create(request("k"))
		if got.GetPhase() != sandboxv1.Phase_ENDED || got.GetFailureReason() != "RecordLost" || got.GetId() != first.GetId() {
			t.Fatalf("answered %v", got)
		}
		if n := f.workers["east"].count(); n != 0 {
			t.Fatalf("%d new sandboxes", n)
		}
	})
}

func TestI2AfterTheEndTheTerminalRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		first := f.create(request("k"))
		for range 2 { // a batch whose acknowledgement was lost comes again
			if err := f.hub.OnEnded(t.Context(), "east", endedOf(first, "k", 1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		f.workers["east"].forget()
		f.restart()
		for range 2 {
			got := f.create(request("k"))
			if got.GetPhase() != sandboxv1.Phase_ENDED || got.GetStopReason() != "Completed" || got.GetId() != first.GetId() {
				t.Fatalf("answered %v", got)
			}
		}
		f.workers["east"].setConnected(false)
		if got, err := f.hub.Get(t.Context(), first.GetId()); err != nil || got.GetStopReason() != "Completed" {
			t.Fatalf("by id, with the worker gone: %v %v", got, err)
		}
		f.workers["east"].setConnected(true)

		time.Sleep(DefaultRetention - 2*time.Hour - time.Minute)
		if err := f.hub.sweep(t.Context()); err != nil || f.record("k") == nil {
			t.Fatalf("a key is honoured until 24 h after the end, %v", err)
		}
		time.Sleep(2 * time.Minute)
		if err := f.hub.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := f.stored(); left != "" {
			t.Fatalf("left in the store: %s", left)
		}
		if again := f.create(request("k")); again.GetId() == first.GetId() || again.GetPhase() != sandboxv1.Phase_RUNNING {
			t.Fatalf("an expired key answers %v", again)
		}
	})
}

func TestI2OtherParametersConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		f.create(request("k"))
		for name, change := range map[string]func(*sandboxv1.CreateSandboxRequest){
			"image":   func(r *sandboxv1.CreateSandboxRequest) { r.Image = "app:v2" },
			"timeout": func(r *sandboxv1.CreateSandboxRequest) { r.StartupTimeout = durationpb.New(time.Minute) },
			"user":    func(r *sandboxv1.CreateSandboxRequest) { r.User = "u" },
			"env":     func(r *sandboxv1.CreateSandboxRequest) { r.Env = "other" },
		} {
			_, err := f.hub.Create(t.Context(), request("k", change))
			if err == nil || reasonOf(err) != problem.ClaimKeyConflict || problem.FromError(err).ClaimKey != "k" {
				t.Errorf("another %s: %v", name, err)
			}
		}
		// How a caller waits is no parameter, and another team has another key.
		f.create(request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Wait = waitAssigned }))
		f.create(request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Team = "t" }))
		if n := f.workers["east"].count(); n != 2 {
			t.Errorf("%d sandboxes, want one a team", n)
		}
	})
}
