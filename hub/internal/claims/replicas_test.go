// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

// TestI2TwoReplicasAskedAtOnceReturnOneSandbox: they meet at the record and at the worker, also where clusters refuse.
func TestI2TwoReplicasAskedAtOnceReturnOneSandbox(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			f := newReplicas(t, map[string]int32{"east": 50, "north": 50, "west": 50}, 3)
			var mu sync.Mutex
			draw := rand.New(rand.NewPCG(seed, 1))
			within := func(most time.Duration) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(draw.Int64N(int64(most)))
			}
			for _, w := range f.Workers {
				w.OnClaim = func(ctx context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
					time.Sleep(within(20 * time.Millisecond))
					if within(10) < 3 && !holds(w, c) {
						return refuse(w, problem.QueueFull)(ctx, c, carryOut)
					}
					answer := carryOut()
					time.Sleep(within(20 * time.Millisecond))
					return answer, nil
				}
			}
			for _, r := range f.replicas {
				r.delay = func() time.Duration { return within(5 * time.Millisecond) }
			}
			for n := range 10 {
				var asked []<-chan created
				for _, r := range f.replicas {
					time.Sleep(within(10 * time.Millisecond))
					asked = append(asked, ask(r, workertest.Request(fmt.Sprint("k", n))))
				}
				ids := map[string]bool{}
				for _, one := range asked {
					got := <-one
					switch {
					case got.err == nil:
						ids[got.sandbox.GetId()] = true
					case reasonOf(got.err) != problem.QueueFull && reasonOf(got.err) != problem.NoCapacity: // each candidate refused it
						t.Errorf("seed %d, key %d: %v", seed, n, got.err)
					}
				}
				if len(ids) > 1 {
					t.Errorf("seed %d, key %d: %v", seed, n, ids)
				}
				synctest.Wait()
				if r := f.recordOf(fmt.Sprint("k", n)); len(ids) > 0 && (r.State != ledger.Returned || !ids[r.SandboxID]) {
					t.Errorf("seed %d, key %d: recorded %s %s, returned %v", seed, n, r.State, r.SandboxID, ids)
				}
			}
			time.Sleep(time.Second)
			named := map[string]int{}
			for _, w := range f.Workers {
				for _, s := range w.Live {
					named[s.GetClaimKey()]++
				}
			}
			for key, n := range named {
				if n > 1 {
					t.Errorf("seed %d: %d sandboxes have key %s", seed, n, key)
				}
			}
		})
	}
}

// holds reports whether a worker has the attempt.
func holds(w *workertest.Worker, c *federationv1.ClaimCall) bool {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	h, ok := w.Keys[c.GetKeyHash()]
	return ok && h.Attempt == c.GetAttempt()
}

// TestI2NotSentMovesNoClaimThatAnotherReplicaJoined: what the writer of an attempt could not send, the other has sent.
func TestI2NotSentMovesNoClaimThatAnotherReplicaJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5, "west": 5}, 2)
		a, b := f.replicas[0], f.replicas[1]
		notSent, takes := make(chan struct{}), make(chan struct{})
		a.onDispatch = func(_ context.Context, c *federationv1.ClaimCall) error {
			if c.GetAttempt() > 1 {
				return nil
			}
			<-notSent
			return calls.ErrNotConnected
		}
		f.Workers["east"].OnClaim = after(func() { <-takes })
		atA := ask(a, workertest.Request("k", workertest.Prefer("east")))
		synctest.Wait()
		atB := ask(b, workertest.Request("k", workertest.Prefer("east")))
		synctest.Wait()
		if r := f.recordOf("k"); !r.Joined || r.Attempt != 1 || r.Replica != "hub-0" {
			t.Errorf("before the other replica sends it, the record is %+v", r)
		}
		close(notSent)
		time.Sleep(time.Second)
		if asked := f.Workers["west"].Claims(); len(asked) > 0 {
			t.Errorf("west was sent %v while east may hold the key", asked)
		}
		close(takes)
		first, second := <-atB, <-atA
		if first.err != nil || second.err != nil || first.sandbox.GetId() != second.sandbox.GetId() || f.live() != 1 {
			t.Errorf("%v and %v, %d sandboxes", first, second, f.live())
		}
	})
}

// Alone, the writer knows that nothing was sent.
func TestNotSentMovesAClaimThatNoReplicaJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5, "west": 5}, 2)
		f.Workers["east"].SetConnected(false)
		got := <-ask(f.replicas[0], workertest.Request("k", workertest.Prefer("east")))
		if got.err != nil || got.sandbox.GetClusterId() != "west" || f.recordOf("k").Attempt != 2 {
			t.Errorf("%v", got)
		}
	})
}

// TestI2ACancelAtAnotherReplicaEndsTheClaim, whether or not the worker was told before it granted.
func TestI2ACancelAtAnotherReplicaEndsTheClaim(t *testing.T) {
	for name, lost := range map[string]bool{"told": false, "not told": true} {
		bubble(t, name, func(t *testing.T) {
			f := newReplicas(t, map[string]int32{"east": 5, "west": 5}, 2)
			a, b := f.replicas[0], f.replicas[1]
			east, gate := f.Workers["east"], make(chan struct{})
			east.OnClaim = after(func() { <-gate })
			east.OnCall = func(_ context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
				if d.GetCancel() != nil && lost {
					return nil, workertest.ErrBroken
				}
				return nil, nil
			}
			atA := ask(a, workertest.Request("k", workertest.Prefer("east")))
			synctest.Wait()
			_, err := b.CancelClaim(t.Context(), cancelOf("k"))
			must.Succeed(t, err)
			close(gate)
			if got := <-atA; got.err != nil || got.sandbox.GetPhase() != sandboxv1.Phase_ENDED || got.sandbox.GetStopReason() != "Canceled" {
				t.Errorf("the waiting caller gets %v", got)
			}
			synctest.Wait()
			if f.live() > 0 {
				t.Error("the grant lives on")
			}
		})
	}
}

// A claim that cannot reach its cluster notices a cancel before its deadline.
func TestACancelAtAnotherReplicaEndsAClaimThatWaitsForItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5}, 2)
		f.Workers["east"].OnClaim = loseAnswer
		atA := ask(f.replicas[0], workertest.Request("k"))
		time.Sleep(time.Second)
		_, err := f.replicas[1].CancelClaim(t.Context(), cancelOf("k"))
		must.Succeed(t, err)
		began := time.Now()
		if got := <-atA; got.sandbox.GetStopReason() != "Canceled" || time.Since(began) > 2*maxPause {
			t.Errorf("after %s: %v", time.Since(began), got)
		}
	})
}

// TestI2ASandboxIsRecordedBeforeItIsReturned: so each replica finds it, and none claims again.
func TestI2ASandboxIsRecordedBeforeItIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5, "west": 5}, 3)
		first := workertest.Create(t, f.replicas[0], workertest.Request("k"))
		if r := f.recordOf("k"); r.State != ledger.Returned || r.SandboxID != first.GetId() {
			t.Errorf("when it was returned, the record was %+v", r)
		}
		for _, r := range f.replicas {
			if again := workertest.Create(t, r, workertest.Request("k")); again.GetId() != first.GetId() {
				t.Errorf("%s, then %s", first.GetId(), again.GetId())
			}
		}
		if n := len(f.Workers["east"].Claims()) + len(f.Workers["west"].Claims()); n != 1 {
			t.Errorf("%d claims for one key", n)
		}
		// A release at one replica is the end at every other.
		_, err := f.replicas[1].End(t.Context(), first.GetClusterId(), first.GetId())
		must.Succeed(t, err)
		if again := workertest.Create(t, f.replicas[2], workertest.Request("k")); again.GetPhase() != sandboxv1.Phase_ENDED {
			t.Errorf("after its release: %v", again)
		}
	})
}

// TestI2AReplicaDies at each point of a claim, and the caller asks another one.
func TestI2AReplicaDies(t *testing.T) {
	for name, setUp := range map[string]func(f *replicated, a *replica){
		"after its record": func(_ *replicated, a *replica) {
			a.onDispatch = func(ctx context.Context, _ *federationv1.ClaimCall) error {
				<-ctx.Done()
				return ctx.Err()
			}
		},
		"after the dispatch": func(f *replicated, _ *replica) {
			f.Workers["east"].OnClaim = func(ctx context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (
				*federationv1.Answer, error) {
				f.Workers["east"].OnClaim = nil
				carryOut()
				return hangs(ctx, c, carryOut)
			}
		},
		"before the second write": func(f *replicated, a *replica) {
			f.Workers["east"].OnClaim = after(func() {
				f.Workers["east"].OnClaim = nil
				a.dead.Store(true)
			})
		},
	} {
		bubble(t, name, func(t *testing.T) {
			f := newReplicas(t, map[string]int32{"east": 5, "west": 5}, 2)
			a, b := f.replicas[0], f.replicas[1]
			setUp(f, a)
			atA := ask(a, workertest.Request("k", workertest.Prefer("east")))
			synctest.Wait()
			a.die()
			if got := <-atA; got.err == nil {
				t.Errorf("a dead replica returns %v", got.sandbox)
			}
			got := workertest.Create(t, b, workertest.Request("k", workertest.Prefer("east")))
			if r := f.recordOf("k"); got.GetClusterId() != "east" || f.live() != 1 || r.SandboxID != got.GetId() || r.Attempt != 1 {
				t.Errorf("%v, %d sandboxes, record %+v", got, f.live(), r)
			}
		})
	}
}

// TestAClaimOfADeadReplicaWaitsForNoPodWhileOthersAreIdle: its record names a cluster that other claims have filled since.
func TestAClaimOfADeadReplicaWaitsForNoPodWhileOthersAreIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5, "west": 5}, 2)
		a, b := f.replicas[0], f.replicas[1]
		a.onDispatch = func(ctx context.Context, _ *federationv1.ClaimCall) error {
			<-ctx.Done()
			return ctx.Err()
		}
		atA := ask(a, workertest.Request("k", workertest.Prefer("east")))
		synctest.Wait()
		a.die()
		<-atA
		east := f.Workers["east"]
		var asked []bool
		east.OnClaim = func(ctx context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			asked = append(asked, c.GetIdleOnly())
			return refuse(east, problem.NoCapacity)(ctx, c, carryOut)
		}
		got := workertest.Create(t, b, workertest.Request("k", workertest.Prefer("east")))
		if got.GetClusterId() != "west" || len(asked) != 1 || !asked[0] || f.recordOf("k").Attempt != 2 {
			t.Errorf("%v; east was asked %v, record %+v", got, asked, f.recordOf("k"))
		}
	})
}

// TestI2AFrozenReplicaReturnsNoSecondSandbox: its dispatch arrives after the claim was refused, moved on, and was answered; and its worker
// has forgotten the refusal.
func TestI2AFrozenReplicaReturnsNoSecondSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5, "west": 5}, 2)
		a, b := f.replicas[0], f.replicas[1]
		east, frozen := f.Workers["east"], make(chan struct{})
		a.onDispatch = func(context.Context, *federationv1.ClaimCall) error {
			<-frozen
			return nil
		}
		east.OnClaim = refuse(east, problem.QueueFull)
		atA := ask(a, workertest.Request("k", workertest.Prefer("east")))
		synctest.Wait()
		first := workertest.Create(t, b, workertest.Request("k", workertest.Prefer("east")))
		if first.GetClusterId() != "west" || f.recordOf("k").Attempt != 2 {
			t.Fatalf("%v", first)
		}
		east.Forget()
		east.OnClaim = nil
		close(frozen)
		if got := <-atA; got.err != nil || got.sandbox.GetId() != first.GetId() {
			t.Errorf("the frozen replica returns %v, not %s", got, first.GetId())
		}
		synctest.Wait()
		if f.live() != 1 || east.Count() > 0 {
			t.Errorf("%d sandboxes", f.live())
		}
	})
}

// TestACallIsNotAnsweredFromBeforeIt: a flight has read that the sandbox lives, and another replica ends it before the flight returns. A
// call that begins after that gets the end.
func TestACallIsNotAnsweredFromBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5}, 2)
		a, b := f.replicas[0], f.replicas[1]
		workertest.Create(t, a, workertest.Request("k"))
		late, reads := make(chan struct{}), 0
		a.onRead = func() {
			if reads++; reads == 2 { // the last before the result
				<-late
			}
		}
		before := ask(a, workertest.Request("k"))
		synctest.Wait()
		_, err := b.CancelClaim(t.Context(), cancelOf("k"))
		must.Succeed(t, err)
		after := ask(a, workertest.Request("k"))
		synctest.Wait()
		close(late)
		<-before
		if got := <-after; got.err != nil || got.sandbox.GetPhase() != sandboxv1.Phase_ENDED {
			t.Errorf("after the cancel returned, the key has %v", got)
		}
	})
}
