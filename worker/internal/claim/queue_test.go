// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

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

func TestQueueIsBoundedOrderedAndPatient(t *testing.T) {
	w := claimtest.NewWorld(t)
	w.MakePool(1)
	l := w.Lead(1, func(o *claimtest.Options, _ *rest.Config) { o.Claims.QueueCapacity = 3 })
	l.AwaitIdle(1)
	first := l.MustCreate()

	type answer struct {
		who int
		got *sandboxv1.Sandbox
		err error
	}
	answers := make(chan answer, 3)
	for i := range 3 {
		go func() {
			got, err := l.TryCreate(func(c *claim.Claim) {
				if i == 1 {
					c.Request.StartupTimeout = durationpb.New(300 * time.Millisecond)
				}
			})
			answers <- answer{i, got, err}
		}()
		l.AwaitWaiting(int32(i + 1))
	}
	_, err := l.TryCreate()
	wantRefusal(t, err, problem.QueueFull)
	_, err = l.TryCreate(claimtest.NoQueue)
	wantRefusal(t, err, problem.NoCapacity)

	late := <-answers
	if late.who != 1 {
		t.Fatalf("claim %d was answered first: %v, %v", late.who, late.got, late.err)
	}
	wantRefusal(t, late.err, problem.Deadline)

	for _, who := range []int{0, 2} {
		_, err := l.Release(t.Context(), first.GetId())
		w.Must(err)
		next := <-answers
		if next.err != nil || next.who != who {
			t.Fatalf("claim %d was answered (%v), want %d", next.who, next.err, who)
		}
		first = next.got
	}
	stats, ok := l.Stats(l.W.Key("p"))
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

// One tenant's flood costs another one a Pod's wait, not the flood's, and never its place.
func TestQueueIsFairBetweenTenants(t *testing.T) {
	w := claimtest.NewWorld(t)
	w.MakePool(1)
	l := w.Lead(1, func(o *claimtest.Options, _ *rest.Config) { o.Claims.QueueCapacity = 3 })
	l.AwaitIdle(1)
	holder := l.MustCreate()

	type answer struct {
		who string
		got *sandboxv1.Sandbox
		err error
	}
	answers := make(chan answer, 4)
	wait := func(who string, waiting int32, change ...func(*claim.Claim)) {
		t.Helper()
		go func() {
			got, err := l.TryCreate(change...)
			answers <- answer{who, got, err}
		}()
		l.AwaitWaiting(waiting)
	}
	wait("ann 1", 1, as("ann"))
	wait("ann 2", 2, as("ann"))
	wait("ann 3", 3, as("ann"), claimtest.Keyed("k", 1))
	wait("bob", 3, as("bob"))

	displaced := <-answers
	if displaced.who != "ann 3" {
		t.Fatalf("%s was answered first: %v, %v", displaced.who, displaced.got, displaced.err)
	}
	wantRefusal(t, displaced.err, problem.QueueFull)
	_, err := l.TryCreate(as("ann"), claimtest.Keyed("k", 1))
	wantRefusal(t, err, problem.QueueFull) // the hub may have gone elsewhere with it
	if len(answers) != 0 {
		t.Error("a claim that asked again displaced another")
	}

	for _, who := range []string{"ann 1", "bob", "ann 2"} {
		_, err := l.Release(t.Context(), holder.GetId())
		w.Must(err)
		next := <-answers
		if next.err != nil || next.who != who {
			t.Fatalf("%s was answered (%v), want %s", next.who, next.err, who)
		}
		holder = next.got
	}
	if n := turnedAway(l, "Displaced"); n != 1 {
		t.Errorf("%v claims were displaced by the metric, want 1", n)
	}
}

func turnedAway(l *claimtest.Leader, reason string) (n float64) {
	l.W.T.Helper()
	families, err := l.Metrics.Gather()
	l.W.Must(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "atoll_worker_claims_turned_away_total" && m.GetLabel()[0].GetValue() == reason {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// A caller without a key who leaves takes the claim along, wherever it is.
func TestAClaimWithoutAKeyEndsWithItsCaller(t *testing.T) {
	w := claimtest.NewWorld(t)
	w.MakePool(1)
	l := w.Lead(1)
	l.AwaitIdle(1)

	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := l.Create(ctx, l.Request(claimtest.Image("test.local/slow/fail-pull:1")))
		gone <- err
	}()
	w.Eventually("the swap to begin", func() error {
		list, err := l.List(t.Context(), &sandboxv1.ListSandboxesRequest{Namespace: w.Namespace})
		if err != nil || len(list.GetSandboxes()) == 0 {
			return fmt.Errorf("%v, %w", list, err)
		}
		return nil
	})
	cancel()
	if err := <-gone; err == nil {
		t.Error("a caller who left was answered")
	}
	w.Eventually("the sandbox to end", func() error {
		list, err := l.List(t.Context(), &sandboxv1.ListSandboxesRequest{Namespace: w.Namespace})
		if err != nil || len(list.GetSandboxes()) != 0 {
			return fmt.Errorf("%v, %w", list, err)
		}
		return nil
	})
	l.AwaitIdle(1)
	l.MustCreate()

	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		_, err := l.Create(ctx, l.Request())
		gone <- err
	}()
	l.AwaitWaiting(1)
	cancel()
	<-gone
	l.AwaitWaiting(0)
}

// A caller who leaves as a Pod becomes idle has either the sandbox or none: no Pod stays with a claim that nobody was told of.
func TestACallerWhoLeavesAsItIsServedLeavesNoPod(t *testing.T) {
	w := claimtest.NewWorld(t)
	w.MakePool(1)
	l := w.Lead(1)
	l.AwaitIdle(1)
	for round := range 12 {
		holder := l.MustCreate()
		ctx, cancel := context.WithCancel(t.Context())
		type answer struct {
			got *sandboxv1.Sandbox
			err error
		}
		answered := make(chan answer, 1)
		go func() {
			got, err := l.Create(ctx, l.Request())
			answered <- answer{got, err}
		}()
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
		_, err := l.Release(t.Context(), holder.GetId())
		w.Must(err)
		<-handed
		if a := <-answered; a.err == nil {
			_, err := l.Release(t.Context(), a.got.GetId())
			w.Must(err)
		}
		l.AwaitIdle(1)
	}
	w.Eventually("all sandboxes to end", func() error {
		list, err := l.List(t.Context(), &sandboxv1.ListSandboxesRequest{Namespace: w.Namespace})
		if err != nil || len(list.GetSandboxes()) != 0 {
			return fmt.Errorf("%v, %w", list, err)
		}
		return nil
	})
}

func TestPoolThatGoesRefusesWhoWaits(t *testing.T) {
	w := claimtest.NewWorld(t)
	w.MakePool(0)
	l := w.Lead(1)
	w.Eventually("the pool", func() error {
		if _, ok := l.Stats(l.W.Key("p")); !ok {
			return errors.New("not known")
		}
		return nil
	})
	waits := make(chan error, 1)
	go func() {
		_, err := l.TryCreate()
		waits <- err
	}()
	l.AwaitWaiting(1)
	w.RemovePool()
	wantRefusal(t, <-waits, problem.NoCapacity)
	w.Eventually("the pool to be forgotten", func() error {
		_, err := l.TryCreate()
		if problem.FromError(err).Reason != problem.NotFound {
			return err
		}
		return nil
	})
}
