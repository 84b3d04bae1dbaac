// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/claim"
)

// waitingClaims is a claim service in which every claim waits.
type waitingClaims struct {
	Claims
	Sandboxes
	declined []claim.Claim
}

func (*waitingClaims) OnEnded(func()) {}

func (*waitingClaims) Create(ctx context.Context, _ claim.Claim) (*sandboxv1.Sandbox, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Decline knows no attempt but the first.
func (w *waitingClaims) Decline(c claim.Claim, why *problem.Error) error {
	w.declined = append(w.declined, c)
	return why // without a disposition that makes it a refusal
}

func keyedDispatch(keyHash string) *federationv1.Dispatch {
	return &federationv1.Dispatch{Id: 7, Call: &federationv1.Dispatch_Claim{Claim: &federationv1.ClaimCall{
		Request: &sandboxv1.CreateSandboxRequest{Namespace: "default"}, Pool: "p", KeyHash: keyHash, Attempt: 3, IdleOnly: true,
	}}}
}

func newUplink(a *Agent) *uplink {
	return &uplink{agent: a, receipts: make(chan *federationv1.WorkerFrame, maxCalls), answers: make(chan answeredDispatch),
		sentAll: make(chan struct{})}
}

// I2: whether a claim with a key may be refused for lack of room is decided by the claim service, which knows its attempt.
func TestI2ABusyWorkerRefusesNoAttemptThatItKnows(t *testing.T) {
	claims := &waitingClaims{}
	a := New(nil, nil, nil, Options{Services: Services{Claims: claims, Sandboxes: claims}, Log: logr.Discard()})
	for range maxClaims {
		a.slots.claims <- struct{}{}
	}
	for keyHash, want := range map[string]federationv1.Disposition{"": federationv1.Disposition_REFUSED,
		"k": federationv1.Disposition_UNCLEAR} {
		u := newUplink(a)
		go func() {
			if err := u.dispatch(t.Context(), keyedDispatch(keyHash)); err != nil {
				t.Error(err)
			}
		}()
		if got := (<-u.answers).answer; got.GetDisposition() != want || got.GetId() != 7 {
			t.Errorf("key %q: answered %s, want %s", keyHash, got.GetDisposition(), want)
		}
	}
	if len(claims.declined) != 1 || claims.declined[0].KeyHash != "k" || claims.declined[0].Attempt != 3 ||
		claims.declined[0].Pool.Name != "p" || !claims.declined[0].IdleOnly {
		t.Errorf("asked about %+v", claims.declined)
	}
	u, stale := newUplink(a), keyedDispatch("k")
	stale.Incarnation = 9
	go func() { _ = u.dispatch(t.Context(), stale) }()
	if got := (<-u.answers).answer.GetDisposition(); got != federationv1.Disposition_STALE_SESSION {
		t.Errorf("for another incarnation: %s", got)
	}
}

// A claim whose caller has left leaves the queue, and is answered; a claim with a key continues, and so do those of other
// callers.
func TestACallerThatLeavesTakesItsClaimAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(nil, nil, nil, Options{Services: Services{Claims: &waitingClaims{}, Sandboxes: &waitingClaims{}}, Log: logr.Discard()})
		a.running = t.Context()
		u := newUplink(a)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for id, keyHash := range map[uint64]string{1: "", 2: "", 3: "k"} {
			d := keyedDispatch(keyHash)
			d.Id = id
			must.Succeed(t, u.dispatch(ctx, d))
		}
		u.unkeyedClaims.cancel([]uint64{2, 3, 4})
		if got := (<-u.answers).answer; got.GetId() != 2 || got.GetError() == nil {
			t.Errorf("answered %v", got)
		}
		synctest.Wait()
		if taken := a.slots.taken(); taken != 2 {
			t.Errorf("%d claims are under way, want 2", taken)
		}
		if len(u.unkeyedClaims.cancels) != 1 {
			t.Errorf("%d may be left, want 1", len(u.unkeyedClaims.cancels))
		}
		cancel()
		synctest.Wait()
		if len(u.unkeyedClaims.cancels) != 0 {
			t.Error("what is over is not forgotten")
		}
	})
}

// I10: broken streams leave no dispatch behind, also of claims with a key: those continue in package claim.
func TestI10ADispatchEndsWithItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(nil, nil, nil, Options{Services: Services{Claims: &waitingClaims{}, Sandboxes: &waitingClaims{}}, Log: logr.Discard()})
		a.running = t.Context()
		for range 5 {
			stream, broken := context.WithCancel(t.Context())
			must.Succeed(t, newUplink(a).dispatch(stream, keyedDispatch("k")))
			synctest.Wait()
			if got := a.slots.taken(); got != 1 {
				t.Errorf("%d slots are taken by one claim", got)
			}
			broken()
			synctest.Wait()
		}
		if got := a.slots.taken(); got != 0 {
			t.Errorf("%d slots are taken for streams that have ended", got)
		}
	})
}
