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
)

func wantRefusal(t *testing.T, err error, reason problem.Reason) {
	t.Helper()
	if p := problem.FromError(err); p == nil || p.Reason != reason || claim.Disposition(err) != federationv1.Disposition_REFUSED {
		t.Errorf("got %v (%s), want %s and REFUSED", err, claim.Disposition(err), reason)
	}
}

func TestQueueIsBoundedOrderedAndPatient(t *testing.T) {
	w := newWorld(t)
	w.makePool(1)
	l := w.lead(1, func(o *claim.Options, _ *rest.Config) { o.QueueCapacity = 3 })
	l.awaitIdle("p", 1)
	first := l.mustCreate()

	type answer struct {
		who int
		got *sandboxv1.Sandbox
		err error
	}
	answers := make(chan answer, 3)
	for i := range 3 {
		go func() {
			got, err := l.create(func(c *claim.Claim) {
				if i == 1 {
					c.Request.StartupTimeout = durationpb.New(300 * time.Millisecond)
				}
			})
			answers <- answer{i, got, err}
		}()
		l.awaitWaiting("p", int32(i+1))
	}
	_, err := l.create()
	wantRefusal(t, err, problem.QueueFull)
	_, err = l.create(noQueue)
	wantRefusal(t, err, problem.NoCapacity)

	late := <-answers
	if late.who != 1 {
		t.Fatalf("claim %d was answered first: %v, %v", late.who, late.got, late.err)
	}
	wantRefusal(t, late.err, problem.Deadline)

	for _, who := range []int{0, 2} {
		_, err := l.Release(t.Context(), first.GetId())
		w.must(err)
		next := <-answers
		if next.err != nil || next.who != who {
			t.Fatalf("claim %d was answered (%v), want %d", next.who, next.err, who)
		}
		first = next.got
	}
	stats, ok := l.Stats(l.pool("p"))
	if want := (claim.Stats{WaitCapacity: 3, LastCreate: stats.LastCreate}); !ok || stats != want {
		t.Errorf("stats %+v, want %+v", stats, want)
	}
	if ago := time.Since(stats.LastCreate); ago < 0 || ago > patience {
		t.Errorf("a sandbox was last asked for %s ago", ago)
	}
}

func as(user string) func(*claim.Claim) {
	return func(c *claim.Claim) { c.Request.User = user }
}

// One tenant's flood costs another one a Pod's wait, not the flood's, and never its place.
func TestQueueIsFairBetweenTenants(t *testing.T) {
	w := newWorld(t)
	w.makePool(1)
	l := w.lead(1, func(o *claim.Options, _ *rest.Config) { o.QueueCapacity = 3 })
	l.awaitIdle("p", 1)
	holder := l.mustCreate()

	type answer struct {
		who string
		got *sandboxv1.Sandbox
		err error
	}
	answers := make(chan answer, 4)
	wait := func(who string, waiting int32, change ...func(*claim.Claim)) {
		t.Helper()
		go func() {
			got, err := l.create(change...)
			answers <- answer{who, got, err}
		}()
		l.awaitWaiting("p", waiting)
	}
	wait("ann 1", 1, as("ann"))
	wait("ann 2", 2, as("ann"))
	wait("ann 3", 3, as("ann"), keyed("k", 1))
	wait("bob", 3, as("bob"))

	displaced := <-answers
	if displaced.who != "ann 3" {
		t.Fatalf("%s was answered first: %v, %v", displaced.who, displaced.got, displaced.err)
	}
	wantRefusal(t, displaced.err, problem.QueueFull)
	_, err := l.create(as("ann"), keyed("k", 1))
	wantRefusal(t, err, problem.QueueFull) // the hub may have gone elsewhere with it
	if len(answers) != 0 {
		t.Error("a claim that asked again displaced another")
	}

	for _, who := range []string{"ann 1", "bob", "ann 2"} {
		_, err := l.Release(t.Context(), holder.GetId())
		w.must(err)
		next := <-answers
		if next.err != nil || next.who != who {
			t.Fatalf("%s was answered (%v), want %s", next.who, next.err, who)
		}
		holder = next.got
	}
	if n := l.turnedAway("Displaced"); n != 1 {
		t.Errorf("%v claims were displaced by the metric, want 1", n)
	}
}

func (l *leader) turnedAway(reason string) (n float64) {
	l.w.t.Helper()
	families, err := l.metrics.Gather()
	l.w.must(err)
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
	w := newWorld(t)
	w.makePool(1)
	l := w.lead(1)
	l.awaitIdle("p", 1)

	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := l.Create(ctx, l.request("p", image("test.local/slow/fail-pull:1")))
		gone <- err
	}()
	w.eventually("the swap to begin", func() error {
		list, err := l.List(t.Context(), &sandboxv1.ListSandboxesRequest{Namespace: w.namespace})
		if err != nil || len(list.GetSandboxes()) == 0 {
			return fmt.Errorf("%v, %w", list, err)
		}
		return nil
	})
	cancel()
	if err := <-gone; err == nil {
		t.Error("a caller who left was answered")
	}
	w.eventually("the sandbox to end", func() error {
		list, err := l.List(t.Context(), &sandboxv1.ListSandboxesRequest{Namespace: w.namespace})
		if err != nil || len(list.GetSandboxes()) != 0 {
			return fmt.Errorf("%v, %w", list, err)
		}
		return nil
	})
	l.awaitIdle("p", 1)
	l.mustCreate()

	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		_, err := l.Create(ctx, l.request("p"))
		gone <- err
	}()
	l.awaitWaiting("p", 1)
	cancel()
	<-gone
	l.awaitWaiting("p", 0)
}

// A caller who leaves as a Pod becomes idle has either the sandbox or none: no Pod stays with a claim that nobody was told of.
func TestACallerWhoLeavesAsItIsServedLeavesNoPod(t *testing.T) {
	w := newWorld(t)
	w.makePool(1)
	l := w.lead(1)
	l.awaitIdle("p", 1)
	for round := range 12 {
		holder := l.mustCreate()
		ctx, cancel := context.WithCancel(t.Context())
		type answer struct {
			got *sandboxv1.Sandbox
			err error
		}
		answered := make(chan answer, 1)
		go func() {
			got, err := l.Create(ctx, l.request("p"))
			answered <- answer{got, err}
		}()
		l.awaitWaiting("p", 1)
		handed := make(chan struct{})
		go func() { // as the Pod is handed over, or while it is being written
			defer close(handed)
			for stats, _ := l.Stats(l.pool("p")); stats.Waiting > 0; stats, _ = l.Stats(l.pool("p")) {
				runtime.Gosched()
			}
			for range round * 1000 {
				runtime.Gosched()
			}
			cancel()
		}()
		_, err := l.Release(t.Context(), holder.GetId())
		w.must(err)
		<-handed
		if a := <-answered; a.err == nil {
			_, err := l.Release(t.Context(), a.got.GetId())
			w.must(err)
		}
		l.awaitIdle("p", 1)
	}
	w.eventually("all sandboxes to end", func() error {
		list, err := l.List(t.Context(), &sandboxv1.ListSandboxesRequest{Namespace: w.namespace})
		if err != nil || len(list.GetSandboxes()) != 0 {
			return fmt.Errorf("%v, %w", list, err)
		}
		return nil
	})
}

func TestPoolThatGoesRefusesWhoWaits(t *testing.T) {
	w := newWorld(t)
	w.makePool(0)
	l := w.lead(1)
	w.eventually("the pool", func() error {
		if _, ok := l.Stats(l.pool("p")); !ok {
			return errors.New("not known")
		}
		return nil
	})
	waits := make(chan error, 1)
	go func() {
		_, err := l.create()
		waits <- err
	}()
	l.awaitWaiting("p", 1)
	w.removePool()
	wantRefusal(t, <-waits, problem.NoCapacity)
	w.eventually("the pool to be forgotten", func() error {
		_, err := l.create()
		if problem.FromError(err).Reason != problem.NotFound {
			return err
		}
		return nil
	})
}
