// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

func TestWaitNoneIsAnsweredWhenDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		gate := make(chan struct{})
		f.Workers["east"].OnClaim = func(_ context.Context, c *federationv1.ClaimCall,
			carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			if c.GetRequest().GetWait() != waitAssigned {
				t.Errorf("dispatched with wait %s", c.GetRequest().GetWait())
			}
			<-gate
			return carryOut(), nil
		}
		unwaited := workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Wait = noWait })
		got := f.create(unwaited)
		if got.GetPhase() != sandboxv1.Phase_PENDING || got.GetClaimKey() != "k" || f.record("k") == nil {
			t.Fatalf("answered %v", got)
		}
		close(gate)
		ready := f.create(workertest.Request("k"))
		if ready.GetPhase() != sandboxv1.Phase_RUNNING || f.Workers["east"].Count() != 1 {
			t.Fatalf("then %v", ready)
		}
	})
}

// TestWaitNoneGetsTheErrorOfAFlightWithoutARecord, even if it looks between the two channels that the flight closes at its end.
func TestWaitNoneGetsTheErrorOfAFlightWithoutARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flight{
			durable: make(chan struct{}), done: make(chan struct{}), err: problem.New(problem.NoCapacity, "no cluster could be reached"),
		}
		f.writtenDown(nil)
		out := make(chan created, 1)
		go func() {
			sandbox, err := f.accepted()
			out <- created{sandbox, err}
		}()
		synctest.Wait()
		close(f.done)
		got := <-out
		workertest.WantReason(t, got.err, problem.NoCapacity)
		if got.sandbox != nil {
			t.Errorf("a claim that failed is answered %v", got.sandbox)
		}
	})
}

func TestAnUnwaitedClaimIsTakenUpByTheNextHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		east := f.Workers["east"]
		east.OnClaim = hangs
		f.create(workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Wait = noWait }))
		f.restart()
		east.OnClaim = nil
		stop := runHub(t, f.hub)
		time.Sleep(5 * time.Second)
		if east.Count() != 1 {
			t.Fatal("the claim was not pursued")
		}
		if r := f.record("k"); r.State != ledger.Returned {
			t.Errorf("record %+v", r)
		}
		stop()
	})
}

func TestReadyWaitsOnForWhatAssignedLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		east := f.Workers["east"]
		east.Phase = sandboxv1.Phase_STARTING
		assigned := f.create(workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Wait = waitAssigned }))
		if assigned.GetPhase() != sandboxv1.Phase_STARTING {
			t.Fatalf("assigned: %v", assigned)
		}
		time.AfterFunc(5*time.Second, func() {
			east.Mu.Lock()
			defer east.Mu.Unlock()
			east.Live[assigned.GetId()].Phase = sandboxv1.Phase_RUNNING
		})
		ready := f.create(workertest.Request("k"))
		if ready.GetPhase() != sandboxv1.Phase_RUNNING || ready.GetId() != assigned.GetId() {
			t.Fatalf("ready: %v", ready)
		}
	})
}

func TestAFailedStoreClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		must.Succeed(t, f.store.Close())
		f.wantReason(problem.Unavailable, workertest.Request("k"))
		if n := len(f.Workers["east"].Claims()); n != 0 {
			t.Errorf("%d dispatches without a record", n)
		}
		// Claims without a key continue.
		f.create(workertest.Request(""))
	})
}

func TestErrorsOfTheWorkerPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		for _, w := range f.Workers {
			w.OnClaim = func(context.Context, *federationv1.ClaimCall, func() *federationv1.Answer) (*federationv1.Answer, error) {
				return workertest.Failure(federationv1.Disposition_DONE, problem.Invalid), nil
			}
		}
		for _, key := range []string{"", "k"} {
			f.wantReason(problem.Invalid, workertest.Request(key))
		}
		if n := len(f.Workers["east"].Claims()) + len(f.Workers["west"].Claims()); n != 2 {
			t.Errorf("%d dispatches: the request's own fault concerns no other cluster", n)
		}
	})
}

// TestI11AnAcceptedClaimOutlivesAStepOfTheClock while no hub runs: with all its time, if the clock was stepped forward, and with
// no more than that, if it was stepped back.
func TestI11AnAcceptedClaimOutlivesAStepOfTheClock(t *testing.T) {
	for _, step := range []time.Duration{10 * time.Minute, 25 * time.Second, -10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"east": 5})
			east := f.Workers["east"]
			east.OnClaim = hangs
			f.create(workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Wait = noWait }))
			f.hub.Close()
			hash := ledger.KeyHash("", "default", "k")
			h, err := f.hub.ledger.Load(t.Context(), hash)
			must.Succeed(t, err)
			stepped := *h.Record
			stepped.Deadline = stepped.Deadline.Add(-step)
			_, err = f.hub.ledger.Save(t.Context(), hash, h, &stepped)
			must.Succeed(t, err)
			f.start()
			began := time.Now()
			east.OnClaim = func(_ context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
				if time.Since(began) < 20*time.Second { // of 30
					return nil, workertest.ErrBroken
				}
				if step < 0 {
					return nil, workertest.ErrBroken
				}
				return carryOut(), nil
			}
			defer runHub(t, f.hub)()
			time.Sleep(time.Minute)
			if got, want := east.Count() == 1, step > 0; got != want || f.hub.InFlight() != 0 {
				t.Errorf("I11: the clock went by %s: served %t, %d under way", step, got, f.hub.InFlight())
			}
		})
	}
}
