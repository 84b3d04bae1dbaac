// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/client-go/rest"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/disposition"
)

func wantRefusal(t *testing.T, err error, reason problem.Reason) {
	t.Helper()
	if p := problem.FromError(err); p == nil || p.Reason != reason || disposition.Of(err) != federationv1.Disposition_REFUSED {
		t.Errorf("got %v (%s), want %s and REFUSED", err, disposition.Of(err), reason)
	}
}

// crowd is the claims of a pool with one Pod, which a sandbox has, and a queue of three.
type crowd struct {
	*claimtest.Worker
	holder  *sandboxv1.Sandbox
	results chan result
}

type result struct {
	who string
	got *sandboxv1.Sandbox
	err error
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	l := claimtest.NewWorld(t).Start(1, func(o *claimtest.Options, _ *rest.Config) { o.Claims.QueueCapacity = 3 })
	return &crowd{l, l.MustCreate(), make(chan result, 4)}
}

// waits starts a claim, and returns when so many wait.
func (c *crowd) waits(who string, waiting int32, change ...func(*claim.Claim)) {
	c.W.T.Helper()
	go func() {
		got, err := c.TryCreate(change...)
		c.results <- result{who, got, err}
	}()
	c.AwaitWaiting(waiting)
}

// isRefused expects the claim that returned first to be this one, without a sandbox.
func (c *crowd) isRefused(who string, reason problem.Reason) {
	c.W.T.Helper()
	first := <-c.results
	if first.who != who {
		c.W.T.Fatalf("%s returned first: %v, %v", first.who, first.got, first.err)
	}
	wantRefusal(c.W.T, first.err, reason)
}

// areServed releases the sandbox repeatedly, and expects these claims to get the Pod in turn.
func (c *crowd) areServed(names ...string) {
	c.W.T.Helper()
	for _, who := range names {
		c.MustRelease(c.holder.GetId())
		next := <-c.results
		if next.err != nil || next.who != who {
			c.W.T.Fatalf("%s got it (%v), want %s", next.who, next.err, who)
		}
		c.holder = next.got
	}
}

func TestQueueIsBoundedOrderedAndPatient(t *testing.T) {
	c := newCrowd(t)
	c.waits("first", 1)
	c.waits("hasty", 2, func(c *claim.Claim) { c.Request.StartupTimeout = durationpb.New(5 * time.Second) })
	c.waits("last", 3)
	_, err := c.TryCreate()
	wantRefusal(t, err, problem.QueueFull)
	_, err = c.TryCreate(claimtest.NoQueue)
	wantRefusal(t, err, problem.NoCapacity)
	c.isRefused("hasty", problem.Deadline)
	c.areServed("first", "last")
	stats, ok := c.Stats(c.W.Key("p"))
	if want := (claim.Stats{WaitCapacity: 3, LastCreate: stats.LastCreate}); !ok || stats != want {
		t.Errorf("stats %+v, want %+v", stats, want)
	}
	if ago := time.Since(stats.LastCreate); ago < 0 || ago > claimtest.Patience {
		t.Errorf("a sandbox was last asked for %s ago", ago)
	}
}

func as(user string) func(*claim.Claim) {
	return func(c *claim.Claim) { c.Request.User = user }
}

// One tenant's flood costs another tenant a Pod's wait, not the flood's, and never its place.
func TestQueueIsFairBetweenTenants(t *testing.T) {
	c := newCrowd(t)
	c.waits("ann 1", 1, as("ann"))
	c.waits("ann 2", 2, as("ann"))
	c.waits("ann 3", 3, as("ann"), claimtest.Keyed("k", 1))
	c.waits("bob", 3, as("bob"))
	c.isRefused("ann 3", problem.QueueFull)
	_, err := c.TryCreate(as("ann"), claimtest.Keyed("k", 1))
	wantRefusal(t, err, problem.QueueFull) // the hub may have taken it to another cluster
	if len(c.results) != 0 {
		t.Error("a claim that asked again displaced another")
	}
	c.areServed("ann 1", "bob", "ann 2")
	if n := c.Metric("atoll_worker_claims_turned_away_total", prometheus.Labels{"reason": "Displaced"}); n != 1 {
		t.Errorf("%v claims were displaced by the metric, want 1", n)
	}
}

// A claim without a key ends when its caller leaves, wherever it is.
func TestAClaimWithoutAKeyEndsWithItsCaller(t *testing.T) {
	_, l := claimtest.Start(t, 1)

	ctx, cancel := context.WithCancel(t.Context())
	starts := l.Begin(ctx, claimtest.Image("test.local/slow/fail-pull:1"))
	l.AwaitSandboxes(1)
	cancel()
	if gone := <-starts; gone.Err == nil {
		t.Error("a caller who left was answered")
	}
	l.AwaitSandboxes(0)
	l.AwaitIdle(1)
	l.MustCreate()

	ctx, cancel = context.WithCancel(t.Context())
	waits := l.Begin(ctx)
	l.AwaitWaiting(1)
	cancel()
	<-waits
	l.AwaitWaiting(0)
}

// A caller that leaves as a Pod becomes idle has either the sandbox or none: no Pod stays with a claim that was returned to no
// caller.
func TestACallerWhoLeavesAsItIsServedLeavesNoPod(t *testing.T) {
	_, l := claimtest.Start(t, 1)
	for round := range 12 {
		holder := l.MustCreate()
		ctx, cancel := context.WithCancel(t.Context())
		answered := l.Begin(ctx)
		l.AwaitWaiting(1)
		handed := make(chan struct{})
		go func() { // as the Pod is handed over, or while it is being written
			defer close(handed)
			for stats, _ := l.Stats(l.W.Key("p")); stats.Waiting > 0; stats, _ = l.Stats(l.W.Key("p")) {
				runtime.Gosched()
			}
			for range round * 1000 {
				runtime.Gosched()
			}
			cancel()
		}()
		l.MustRelease(holder.GetId())
		<-handed
		if a := <-answered; a.Err == nil {
			l.MustRelease(a.Got.GetId())
		}
		l.AwaitIdle(1)
	}
	l.AwaitSandboxes(0)
}

func TestPoolThatGoesRefusesWhoWaits(t *testing.T) {
	w, l := claimtest.Start(t, 0)
	waits := l.Begin(t.Context())
	l.AwaitWaiting(1)
	w.RemovePool()
	wantRefusal(t, (<-waits).Err, problem.NoCapacity)
	w.Eventually("the pool to be forgotten", func() error {
		_, err := l.TryCreate()
		if problem.FromError(err).Reason != problem.NotFound {
			return err
		}
		return nil
	})
}
