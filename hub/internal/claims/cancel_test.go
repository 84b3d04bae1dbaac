// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

func cancelOf(key string) *sandboxv1.CancelClaimRequest {
	return &sandboxv1.CancelClaimRequest{ClaimKey: key}
}

func TestI2CancelOfARunningSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		first := f.create(workertest.Request("k"))
		east := f.Workers["east"]
		east.OnCall = func(_ context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
			if d.GetCancel() != nil && f.record("k").State != ledger.Ended {
				t.Error("the cancel was sent before it was durable")
			}
			return nil, nil
		}
		claim, err := f.hub.CancelClaim(t.Context(), cancelOf("k"))
		if err != nil || claim.GetSandbox().GetStopReason() != "Canceled" || claim.GetSandbox().GetId() != first.GetId() {
			t.Fatalf("%v %v", claim, err)
		}
		if east.Count() != 0 {
			t.Fatal("the sandbox lives on")
		}
		f.restart()
		if again := f.create(workertest.Request("k")); again.GetStopReason() != "Canceled" || again.GetPhase() != sandboxv1.Phase_ENDED {
			t.Fatalf("after the cancel the key answers %v", again)
		}
		// The sandbox's own record has more than the hub's.
		must.Succeed(t, f.hub.OnEnded(t.Context(), "east", workertest.Ended(first, "k", 1)))
		if again := f.create(workertest.Request("k")); again.GetStopReason() != "Completed" || again.GetPodUid() == "" {
			t.Fatalf("after its record the key answers %v", again)
		}
	})
}

// TestI2AGrantAfterTheCancelIsReleased: the worker grants while the cancel is in flight, and gets it last.
func TestI2AGrantAfterTheCancelIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		east := f.Workers["east"]
		gate, deaf := make(chan struct{}), true
		east.OnClaim = after(func() { <-gate })
		east.OnCall = func(_ context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
			if d.GetCancel() != nil && deaf {
				deaf = false
				return nil, workertest.ErrBroken
			}
			return nil, nil
		}
		answered := ask(f.hub, workertest.Request("k"))
		synctest.Wait()
		cancelled := make(chan struct{})
		go func() {
			defer close(cancelled)
			if _, err := f.hub.CancelClaim(context.Background(), cancelOf("k")); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		close(gate)
		<-cancelled
		got := <-answered
		if got.err != nil || got.sandbox.GetPhase() != sandboxv1.Phase_ENDED || got.sandbox.GetStopReason() != "Canceled" {
			t.Fatalf("the waiting caller got %v %v", got.sandbox, got.err)
		}
		synctest.Wait()
		if east.Count() != 0 {
			t.Fatal("the grant lives on")
		}
	})
}

// TestI2ACancelReachesAClusterThatWasAway: only the store has the cancel when the cluster returns.
func TestI2ACancelReachesAClusterThatWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		first := f.create(workertest.Request("k"))
		east := f.Workers["east"]
		east.SetConnected(false)
		if _, err := f.hub.CancelClaim(t.Context(), cancelOf("k")); err != nil {
			t.Fatalf("a cancel does not wait for its cluster: %v", err)
		}
		synctest.Wait()
		f.restart()
		east.SetConnected(true)
		hash := ledger.KeyHash("", "default", "k")
		f.hub.OnKeys("east", []*federationv1.KeyHolder{
			{KeyHash: hash, Attempt: 1, SandboxId: first.GetId()},
			{KeyHash: "0123", Attempt: 1, SandboxId: "unknown to this hub"},
		})
		synctest.Wait()
		if east.Count() != 0 || east.Canceled != 1 {
			t.Fatalf("%d sandboxes, %d cancels", east.Count(), east.Canceled)
		}
	})
}

func TestI2ALaterAttemptMakesTheEarlierPodAStray(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		east := f.Workers["east"]
		east.SetConnected(false)
		got := f.create(workertest.Request("k", workertest.Prefer("east", "west")))
		if got.GetClusterId() != "west" {
			t.Fatalf("answered by %s", got.GetClusterId())
		}
		east.SetConnected(true)
		hash := ledger.KeyHash("", "default", "k")
		east.Claim(&federationv1.ClaimCall{Request: workertest.Request("k"), KeyHash: hash, Attempt: 1}) // against its own response
		f.hub.OnKeys("east", []*federationv1.KeyHolder{{KeyHash: hash, Attempt: 1}})
		f.hub.OnKeys("west", []*federationv1.KeyHolder{{KeyHash: hash, Attempt: 2}})
		synctest.Wait()
		if east.Count() != 0 || f.Workers["west"].Count() != 1 {
			t.Fatalf("%d at east, %d at west", east.Count(), f.Workers["west"].Count())
		}
	})
}

func TestGetClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		get := func(p principal.Principal, key string) (*sandboxv1.Claim, error) {
			return f.hub.GetClaim(principal.With(t.Context(), p), &sandboxv1.GetClaimRequest{ClaimKey: key, Team: "t"})
		}
		owner := principal.Principal{Team: "t", User: "u", AllNamespaces: true}
		first, err := f.hub.Create(principal.With(t.Context(), owner), workertest.Request("k"))
		must.Succeed(t, err)
		claim, err := get(owner, "k")
		if err != nil || claim.GetSandbox().GetId() != first.GetId() || claim.GetClusterId() != "east" || claim.GetAttempt() != 1 {
			t.Fatalf("live: %v %v", claim, err)
		}
		_, err = get(principal.Principal{Team: "t", User: "v", AllNamespaces: true}, "k")
		workertest.WantReason(t, err, problem.NotFound)
		_, err = get(principal.Principal{Team: "s", AllNamespaces: true}, "k")
		workertest.WantReason(t, err, problem.Forbidden)
		_, err = get(owner, "other")
		workertest.WantReason(t, err, problem.NotFound)
		_, err = f.hub.CancelClaim(principal.With(t.Context(), principal.Principal{Team: "t", User: "v", AllNamespaces: true}),
			&sandboxv1.CancelClaimRequest{ClaimKey: "k"})
		workertest.WantReason(t, err, problem.NotFound)

		f.Workers["east"].SetConnected(false)
		if claim, err := get(owner, "k"); err != nil || claim.GetSandbox() != nil || claim.GetClusterId() != "east" {
			t.Fatalf("with its cluster away: %v %v", claim, err)
		}
	})
}

func TestEndedRecordsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		first := f.create(workertest.Request("k", workertest.Prefer("east")))

		// I12: a cluster's report about another's sandbox is ignored.
		must.Succeed(t, f.hub.OnEnded(t.Context(), "west", workertest.Ended(first, "k", 1)))
		// A sandbox of west's own does not end east's claim, whatever key and attempt it names.
		stray := f.create(workertest.Request(""))
		stray.Id, stray.ClusterId = "01hzzzzzzzzzzzzzzzzzzz9999-west", "west"
		must.Succeed(t, f.hub.OnEnded(t.Context(), "west", workertest.Ended(stray, "k", 1)))
		if got := f.create(workertest.Request("k", workertest.Prefer("east"))); got.GetPhase() != sandboxv1.Phase_RUNNING ||
			got.GetId() != first.GetId() {
			t.Fatalf("the claim answers %v", got)
		}
		if strings.Contains(f.stored(), stray.GetId()) {
			t.Fatal("I15: a record is kept of a claim that was not sent to west")
		}

		// The record of a sandbox that was once the key's is kept, for as long as one of the key's own.
		f.loseLedger()
		f.tell("east")
		f.hold("west", "k", 2)
		f.tell("west")
		must.Succeed(t, f.hub.OnEnded(t.Context(), "east", workertest.Ended(first, "k", 1)))
		f.Workers["east"].Forget()
		if got, err := f.hub.Ended(t.Context(), first.GetId()); err != nil || got.GetPhase() != sandboxv1.Phase_ENDED {
			t.Fatalf("the record of the earlier attempt: %v %v", got, err)
		}
		time.Sleep(DefaultRetention + time.Minute)
		must.Succeed(t, f.hub.sweep(t.Context()))
		if strings.Contains(f.stored(), first.GetId()) {
			t.Error("the record of the earlier attempt outlives its retention")
		}
	})
}

func TestSweepKeepsWhatMayBeHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		f.create(workertest.Request("live"))
		f.Workers["east"].OnClaim = loseAnswer
		f.wantReason(problem.OutcomeUnknown, workertest.Request("unanswered"))
		for _, reachable := range []bool{true, false, true} {
			f.Workers["east"].SetConnected(reachable)
			time.Sleep(DefaultRetention + time.Hour)
			must.Succeed(t, f.hub.sweep(t.Context()))
			if f.record("live") == nil || f.record("unanswered") == nil {
				t.Fatalf("reachable %t: a key was dropped that a Pod still carries", reachable)
			}
		}
		f.Workers["east"].Forget()
		time.Sleep(DefaultRetention + time.Hour)
		must.Succeed(t, f.hub.sweep(t.Context()))
		if left := f.stored(); left != "" {
			t.Fatalf("left in the store: %s", left)
		}
	})
}
