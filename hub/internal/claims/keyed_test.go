// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

type claimHook = func(context.Context, *federationv1.ClaimCall, func() *federationv1.Answer) (*federationv1.Answer, error)

// hangs is a worker that responds to no claim.
func hangs(ctx context.Context, _ *federationv1.ClaimCall, _ func() *federationv1.Answer) (*federationv1.Answer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// loseAnswer runs the claim and breaks the stream under its response.
func loseAnswer(_ context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
	carryOut()
	return nil, workertest.ErrBroken
}

// after does something before it runs the claim.
func after(do func()) claimHook {
	return func(_ context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
		do()
		return carryOut(), nil
	}
}

// refuse refuses, and remembers the refusal.
func refuse(w *workertest.Worker, reason problem.Reason) claimHook {
	return func(_ context.Context, c *federationv1.ClaimCall, _ func() *federationv1.Answer) (*federationv1.Answer, error) {
		w.Mu.Lock()
		defer w.Mu.Unlock()
		w.Refused[c.GetKeyHash()] = c.GetAttempt()
		return workertest.Failure(federationv1.Disposition_REFUSED, reason), nil
	}
}

func TestI2RecordIsDurableBeforeTheDispatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		var seen *ledger.Record
		f.Workers["east"].OnClaim = func(_ context.Context, c *federationv1.ClaimCall,
			carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			seen = f.record("k")
			if c.GetKeyHash() != ledger.KeyHash("", "default", "k") {
				t.Errorf("dispatched key hash %q", c.GetKeyHash())
			}
			return carryOut(), nil
		}
		f.create(workertest.Request("k"))
		if seen == nil || seen.Cluster != "east" || seen.Pool != "pool" || seen.Attempt != 1 || seen.State != ledger.Pending {
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
		first := f.create(workertest.Request("k"))
		for range 3 {
			f.restart()
			if again := f.create(workertest.Request("k")); again.GetId() != first.GetId() {
				t.Fatalf("%s, then %s", first.GetId(), again.GetId())
			}
		}
		if n := f.Workers["east"].Count() + f.Workers["west"].Count(); n != 1 {
			t.Fatalf("%d sandboxes for one key", n)
		}
	})
}

// TestI2HubDiesAfterTheDispatch covers the points "after the write, after dispatch, after the answer" of the table.
func TestI2HubDiesAfterTheDispatch(t *testing.T) {
	for name, carriedOut := range map[string]bool{"before the worker acts": false, "after the worker acted": true} {
		bubble(t, name, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"east": 5, "west": 5})
			east := f.Workers["east"]
			east.OnClaim = func(ctx context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer,
				error) {
				if carriedOut {
					carryOut()
				}
				<-ctx.Done() // the hub ends here
				return nil, ctx.Err()
			}
			go func() { _, _ = f.hub.Create(context.Background(), workertest.Request("k", workertest.Prefer("east"))) }()
			synctest.Wait()
			f.restart()
			east.OnClaim = nil
			got := f.create(workertest.Request("k", workertest.Prefer("east")))
			if got.GetClusterId() != "east" {
				t.Fatalf("answered by %s", got.GetClusterId())
			}
			if diff := cmp.Diff([]string{"k/1", "k/1"}, east.Claims()); diff != "" {
				t.Errorf("claims at east (-want +got):\n%s", diff)
			}
			if n := east.Count() + f.Workers["west"].Count(); n != 1 {
				t.Fatalf("%d sandboxes for one key", n)
			}
		})
	}
}

func TestI2RetriesJoinTheFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		gate := make(chan struct{})
		hold := after(func() { <-gate })
		f.Workers["east"].OnClaim, f.Workers["west"].OnClaim = hold, hold

		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.hub.Create(impatient, workertest.Request("k"))
		workertest.WantReason(t, err, problem.Deadline)
		if problem.FromError(err).ClaimKey != "k" {
			t.Errorf("the error does not name its claim key: %v", err)
		}

		ids := make([]string, 20)
		var callers sync.WaitGroup
		for i := range ids {
			callers.Go(func() {
				s, err := f.hub.Create(t.Context(), workertest.Request("k"))
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
		if n := len(f.Workers["east"].Claims()) + len(f.Workers["west"].Claims()); n != 1 {
			t.Errorf("%d dispatches for one flight", n)
		}
	})
}

// TestI2JoinersShareTheFirstDeadline: a retry does not prolong the claim that it joins.
func TestI2JoinersShareTheFirstDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		f.Workers["east"].OnClaim = hangs
		began := time.Now()
		go func() { _, _ = f.hub.Create(context.Background(), workertest.Request("k")) }()
		time.Sleep(20 * time.Second)
		f.wantReason(problem.OutcomeUnknown, workertest.Request("k"))
		if took := time.Since(began); took > 30*time.Second+grace {
			t.Errorf("the joiner was answered after %s", took)
		}
	})
}

func TestI2UnclearStaysWithItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		east, west := f.Workers["east"], f.Workers["west"]
		east.OnClaim = loseAnswer
		err := f.wantReason(problem.OutcomeUnknown, workertest.Request("k", workertest.Prefer("east")))
		if e := problem.FromError(err); e.ClaimKey != "k" || e.RetryAfter == 0 {
			t.Errorf("error %+v gives no claim key or no advice", e)
		}
		east.SetConnected(false)
		f.wantReason(problem.OutcomeUnknown, workertest.Request("k", workertest.Prefer("east")))
		if n := len(west.Claims()); n != 0 {
			t.Fatalf("west was asked %d times while east may hold the key", n)
		}
		east.SetConnected(true)
		east.OnClaim = nil
		if got := f.create(workertest.Request("k", workertest.Prefer("east"))); got.GetClusterId() != "east" || east.Count() != 1 {
			t.Fatalf("%v, %d sandboxes", got, east.Count())
		}
	})
}

func TestAnUnclearOutcomeThatClearsIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		var calls int
		f.Workers["east"].OnClaim = func(ctx context.Context, c *federationv1.ClaimCall,
			carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			if calls++; calls < 4 {
				return loseAnswer(ctx, c, carryOut)
			}
			return carryOut(), nil
		}
		f.create(workertest.Request("k"))
		if n := f.Workers["east"].Count(); n != 1 {
			t.Fatalf("%d sandboxes", n)
		}
	})
}

func TestI2OnlyARefusalOrNothingSentGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"a": 5, "b": 5, "c": 5, "d": 5})
		f.Workers["a"].OnClaim = refuse(f.Workers["a"], problem.QueueFull)
		f.Workers["b"].SetConnected(false)
		got := f.create(workertest.Request("k", workertest.Prefer("a", "b", "c")))
		if r := f.record("k"); got.GetClusterId() != "c" || r.Attempt != 3 || r.Cluster != "c" {
			t.Fatalf("%v, record %+v", got, r)
		}
		if diff := cmp.Diff([]string{"k/3"}, f.Workers["c"].Claims()); diff != "" {
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
		for _, w := range f.Workers {
			w.OnClaim = refuse(w, problem.QueueFull)
		}
		for _, key := range []string{"", "k"} {
			f.wantReason(problem.QueueFull, workertest.Request(key))
		}
		asked := 0
		for _, w := range f.Workers {
			asked += len(w.Claims())
		}
		if asked != 2*maxCandidates {
			t.Errorf("%d dispatches for two claims", asked)
		}
		// A later retry starts over, under a new attempt, on a cluster that has room now.
		for _, w := range f.Workers {
			w.OnClaim = nil
		}
		f.create(workertest.Request("k"))
		if r := f.record("k"); r.Attempt != maxCandidates+1 {
			t.Errorf("the retry ran under attempt %d", r.Attempt)
		}
	})
}

func TestAStaleSessionIsAskedOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		east := f.Workers["east"]
		var calls int
		east.OnClaim = func(_ context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			if calls++; calls == 1 {
				return workertest.Failure(federationv1.Disposition_STALE_SESSION, problem.Unavailable), nil
			}
			return carryOut(), nil
		}
		for _, key := range []string{"k", ""} {
			calls = 0
			if got := f.create(workertest.Request(key, workertest.Prefer("east"))); got.GetClusterId() != "east" || calls != 2 {
				t.Errorf("key %q: %s after %d calls", key, got.GetClusterId(), calls)
			}
		}
		if r := f.record("k"); r.Attempt != 1 {
			t.Errorf("attempt %d: a stale session looked at nothing", r.Attempt)
		}
	})
}

// TestI2AReturnedKeyIsNeverClaimedAgain: a cluster that has lost its Pods and its memory gets no second chance.
func TestI2AReturnedKeyIsNeverClaimedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		first := f.create(workertest.Request("k"))
		f.restart()
		f.Workers["east"].Forget()
		got := f.create(workertest.Request("k"))
		if got.GetPhase() != sandboxv1.Phase_ENDED || got.GetFailureReason() != "RecordLost" || got.GetId() != first.GetId() {
			t.Fatalf("answered %v", got)
		}
		if n := f.Workers["east"].Count(); n != 0 {
			t.Fatalf("%d new sandboxes", n)
		}
	})
}

func TestI2AfterTheEndTheTerminalRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		first := f.create(workertest.Request("k"))
		for range 2 { // a batch whose acknowledgement was lost is sent again
			must.Succeed(t, f.hub.OnEnded(t.Context(), "east", workertest.Ended(first, "k", 1)))
			time.Sleep(time.Hour)
		}
		f.Workers["east"].Forget()
		f.restart()
		for range 2 {
			got := f.create(workertest.Request("k"))
			if got.GetPhase() != sandboxv1.Phase_ENDED || got.GetStopReason() != "Completed" || got.GetId() != first.GetId() {
				t.Fatalf("answered %v", got)
			}
		}
		f.Workers["east"].SetConnected(false)
		if got, err := f.hub.Ended(t.Context(), first.GetId()); err != nil || got.GetStopReason() != "Completed" {
			t.Fatalf("by id, with the worker gone: %v %v", got, err)
		}
		f.Workers["east"].SetConnected(true)

		time.Sleep(DefaultRetention - 2*time.Hour - time.Minute)
		if err := f.hub.sweep(t.Context()); err != nil || f.record("k") == nil {
			t.Fatalf("a key is honoured until 24 h after the end, %v", err)
		}
		time.Sleep(2 * time.Minute)
		must.Succeed(t, f.hub.sweep(t.Context()))
		if left := f.stored(); left != "" {
			t.Fatalf("left in the store: %s", left)
		}
		if again := f.create(workertest.Request("k")); again.GetId() == first.GetId() || again.GetPhase() != sandboxv1.Phase_RUNNING {
			t.Fatalf("an expired key answers %v", again)
		}
	})
}

func TestI2OtherParametersConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		f.create(workertest.Request("k"))
		for name, change := range map[string]func(*sandboxv1.CreateSandboxRequest){
			"image":          func(r *sandboxv1.CreateSandboxRequest) { r.Image = "app:v2" },
			"startupTimeout": func(r *sandboxv1.CreateSandboxRequest) { r.StartupTimeout = durationpb.New(time.Minute) },
			"user":           func(r *sandboxv1.CreateSandboxRequest) { r.User = "u" },
			"env":            func(r *sandboxv1.CreateSandboxRequest) { r.Env = "other" },
		} {
			_, err := f.hub.Create(t.Context(), workertest.Request("k", change))
			if err == nil || reasonOf(err) != problem.ClaimKeyConflict || problem.FromError(err).ClaimKey != "k" ||
				!strings.Contains(err.Error(), "another value of "+name+" before") {
				t.Errorf("another %s: %v", name, err)
			}
		}
		// How a caller waits is no parameter, and another team has another key.
		f.create(workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Wait = waitAssigned }))
		f.create(workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Team = "t" }))
		if n := f.Workers["east"].Count(); n != 2 {
			t.Errorf("%d sandboxes, want one a team", n)
		}
	})
}

// A key whose first attempt was refused at its deadline, in a full cluster, goes where a Pod is idle by then.
func TestAKeyThatTimedOutGoesWhereThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 0})
		f.Workers["east"].OnClaim = refuse(f.Workers["east"], problem.Deadline)
		f.wantReason(problem.Deadline, workertest.Request("k"))
		synctest.Wait() // until the refusal is recorded
		f.Join("west", 1)
		f.Workers["east"].OnClaim = func(context.Context, *federationv1.ClaimCall, func() *federationv1.Answer) (*federationv1.Answer, error) {
			t.Error("the key was sent to the full cluster again")
			return workertest.Failure(federationv1.Disposition_REFUSED, problem.Deadline), nil
		}
		if got := f.create(workertest.Request("k")); got.GetClusterId() != "west" {
			t.Errorf("the key has a sandbox in %s", got.GetClusterId())
		}
	})
}
