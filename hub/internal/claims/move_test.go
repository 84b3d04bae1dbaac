// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
)

// fullCluster is a worker whose claims wait until they are withdrawn, or for a while.
type fullCluster struct {
	*workertest.Worker
	mu       sync.Mutex
	waiting  map[string]chan struct{} // by key hash and attempt
	asked    int                      // how often a claim was to be withdrawn
	left     int                      // claims without a key whose call has ended
	withdraw func(d *federationv1.WithdrawCall, leave func() bool) *federationv1.Answer
}

// newFull has claims of a cluster wait for as long as given before they get a Pod.
func newFull(w *workertest.Worker, wait time.Duration) *fullCluster {
	c := &fullCluster{Worker: w, waiting: map[string]chan struct{}{}}
	w.OnClaim = func(ctx context.Context, call *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
		out := make(chan struct{})
		c.mu.Lock()
		c.waiting[fmt.Sprintf("%s/%d", call.GetKeyHash(), call.GetAttempt())] = out
		c.mu.Unlock()
		patience := time.NewTimer(wait)
		defer patience.Stop()
		select {
		case <-out:
			return refuse(w, problem.NoCapacity)(ctx, call, carryOut)
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			c.left++
			return nil, ctx.Err()
		case <-patience.C:
			return carryOut(), nil
		}
	}
	w.OnCall = func(_ context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
		call := d.GetWithdraw()
		if call == nil {
			return nil, nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked++
		leave := func() bool {
			name := fmt.Sprintf("%s/%d", call.GetKeyHash(), call.GetAttempt())
			out := c.waiting[name]
			if delete(c.waiting, name); out != nil {
				close(out)
			}
			return out != nil
		}
		if c.withdraw != nil {
			return c.withdraw(call, leave), nil
		}
		if !leave() {
			return workertest.Failure(federationv1.Disposition_DONE, problem.NotFound), nil
		}
		return &federationv1.Answer{Disposition: federationv1.Disposition_DONE}, nil
	}
	return c
}

// reportIdle has a cluster report so many idle Pods.
func (f *federation) reportIdle(cluster string, idle int32) {
	f.Report(cluster, &federationv1.EnvSegment{
		Key: &federationv1.EnvKey{Namespace: "default", Name: "demo"},
		Members: []*federationv1.MemberSegment{{
			Name: "pool", State: federationv1.MemberState_ACTIVE, Idle: idle, ReadyIdle: idle, Desired: idle, QueueCapacity: 10, CanGrow: true,
		}},
	})
}

// inFlight are the claims that are counted in a cluster and not covered by its report.
func (f *federation) inFlight(cluster string) int32 {
	f.t.Helper()
	view := f.Fleet.View(segment.Key{Namespace: "default", Name: "demo"})
	for i := range view.Len() {
		if c := view.Candidate(i); c.Cluster.ID == cluster {
			return c.InFlight.Load()
		}
	}
	f.t.Fatalf("no cluster %s", cluster)
	return 0
}

// A claim that waits in a full cluster goes to another one that has an idle Pod for a second: as the next attempt, after its worker has
// refused it (I2), or without a key as if its caller had left.
func TestAWaitingClaimGoesWhereAPodIsIdle(t *testing.T) {
	for _, key := range []string{"k", ""} {
		bubble(t, "key "+key, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"a": 0, "b": 0})
			full := newFull(f.Workers["a"], time.Minute)
			began := time.Now()
			time.AfterFunc(5*time.Second, func() { f.reportIdle("b", 1) })
			got := f.create(workertest.Request(key, workertest.Prefer("a", "b")))
			if took := time.Since(began); got.GetClusterId() != "b" || took < 6*time.Second || took > 8*time.Second {
				t.Fatalf("after %s: %v", took, got)
			}
			if f.Workers["a"].Count() != 0 || f.inFlight("a") != 0 || f.inFlight("b") > 1 {
				t.Errorf("a has %d sandboxes; in flight %d in a, %d in b", f.Workers["a"].Count(), f.inFlight("a"), f.inFlight("b"))
			}
			if key == "" {
				if full.asked != 0 || full.left != 1 {
					t.Errorf("%d claims were withdrawn, %d left", full.asked, full.left)
				}
				return
			}
			if r := f.record("k"); r.Attempt != 2 || r.Cluster != "b" {
				t.Errorf("record %+v", r)
			}
			if diff := cmp.Diff([]string{"k/2"}, f.Workers["b"].Claims()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatKeepsAWaitingClaim(t *testing.T) {
	answer := func(reason problem.Reason) func(*federationv1.WithdrawCall, func() bool) *federationv1.Answer {
		return func(*federationv1.WithdrawCall, func() bool) *federationv1.Answer {
			return workertest.Failure(federationv1.Disposition_DONE, reason)
		}
	}
	for name, tt := range map[string]struct {
		withdraw func(*federationv1.WithdrawCall, func() bool) *federationv1.Answer
		idle     time.Duration // for how long b has an idle Pod
		noMoves  bool          // the claim may not go to b
		asked    [2]int        // at least, at most
	}{
		"it has just got a Pod":           {withdraw: answer(problem.NotFound), idle: time.Minute, asked: [2]int{2, 20}},
		"an earlier version of a worker":  {withdraw: answer(problem.Unimplemented), idle: time.Minute, asked: [2]int{1, 1}},
		"its cluster does not respond":    {withdraw: answer(problem.Unavailable), idle: time.Minute, asked: [2]int{2, 20}},
		"the Pod is gone within a second": {idle: 500 * time.Millisecond},
		"it requires its cluster":         {idle: time.Minute, noMoves: true},
	} {
		bubble(t, name, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"a": 0, "b": 0})
			full := newFull(f.Workers["a"], 10*time.Second)
			full.withdraw = tt.withdraw
			time.AfterFunc(2500*time.Millisecond, func() { f.reportIdle("b", 1) })
			time.AfterFunc(2500*time.Millisecond+tt.idle, func() { f.reportIdle("b", 0) })
			got := f.create(workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) {
				r.Clusters, r.RequireClusters = []string{"a", "b"}, false
				if tt.noMoves {
					r.Clusters, r.RequireClusters = []string{"a"}, true
				}
			}))
			if r := f.record("k"); got.GetClusterId() != "a" || r.Attempt != 1 || len(f.Workers["b"].Claims()) > 0 {
				t.Errorf("%v, record %+v", got, r)
			}
			if full.asked < tt.asked[0] || full.asked > tt.asked[1] {
				t.Errorf("%d requests to withdraw, want %v", full.asked, tt.asked)
			}
			if n := f.inFlight("b"); n != 0 {
				t.Errorf("%d claims are still counted in b", n)
			}
		})
	}
}

// TestI2AClaimThatWasGrantedIsNotMoved: the worker grants the claim while it is asked to withdraw it.
func TestI2AClaimThatWasGrantedIsNotMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"a": 0, "b": 0})
		full := newFull(f.Workers["a"], 10*time.Second)
		full.withdraw = func(*federationv1.WithdrawCall, func() bool) *federationv1.Answer { // says so, and grants all the same
			return &federationv1.Answer{Disposition: federationv1.Disposition_DONE}
		}
		f.reportIdle("b", 0)
		time.AfterFunc(time.Second, func() { f.reportIdle("b", 1) })
		got := f.create(workertest.Request("k", workertest.Prefer("a", "b")))
		if r := f.record("k"); got.GetClusterId() != "a" || r.Attempt != 1 || f.inFlight("b") != 0 || full.asked != 1 {
			t.Errorf("%v, record %+v, %d in flight in b, asked %d times", got, r, f.inFlight("b"), full.asked)
		}
	})
}

// One idle Pod moves one of many claims, and the rest keep their places.
func TestOneIdlePodMovesOneClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"a": 0, "b": 0})
		full := newFull(f.Workers["a"], 20*time.Second)
		left := map[string]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		f.Workers["b"].OnClaim = after(func() { f.reportIdle("b", 0) })
		for i := range 8 {
			all.Go(func() {
				got, err := f.hub.Create(t.Context(), workertest.Request(fmt.Sprint("k", i), workertest.Prefer("a")))
				must.Succeed(t, err)
				mu.Lock()
				defer mu.Unlock()
				left[got.GetClusterId()]++
			})
		}
		time.AfterFunc(5*time.Second, func() { f.reportIdle("b", 1) })
		all.Wait()
		if left["b"] != 1 || full.asked != 1 {
			t.Errorf("%v, %d were withdrawn, want one in b", left, full.asked)
		}
	})
}

// A claim whose Pod is taken on the way waits again.
func TestAClaimWhoseNewPodIsTakenWaitsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"a": 0, "b": 0})
		newFull(f.Workers["a"], 9*time.Second)
		f.Workers["b"].OnClaim = func(ctx context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (
			*federationv1.Answer, error) {
			f.reportIdle("b", 0)
			return refuse(f.Workers["b"], problem.NoCapacity)(ctx, c, carryOut)
		}
		time.AfterFunc(time.Second, func() { f.reportIdle("b", 1) })
		got := f.create(workertest.Request("k", workertest.Prefer("a", "b")))
		if r := f.record("k"); got.GetClusterId() != "a" || r.Attempt != 3 {
			t.Errorf("%v, record %+v", got, r)
		}
		if diff := cmp.Diff([]string{"k/1", "k/3"}, f.Workers["a"].Claims()); diff != "" {
			t.Error(diff)
		}
	})
}
