// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/background"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

// A durable end is sent again to a cluster that was in trouble, whether or not its caller retries.
func TestAnEndThatIsNotConfirmedIsSentAgain(t *testing.T) {
	for name, end := range map[string]func(f *federation, id string) error{
		"release": func(f *federation, id string) error {
			_, err := f.hub.End(f.t.Context(), "east", id)
			return err
		},
		"cancel": func(f *federation, _ string) error {
			_, err := f.hub.CancelClaim(f.t.Context(), cancelOf("k"))
			return err
		},
	} {
		bubble(t, name, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"east": 3})
			defer runHub(t, f.hub)()
			id, east := f.create(workertest.Request("k")).GetId(), f.Workers["east"]
			troubles := 3
			east.OnCall = func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
				if troubles--; troubles < 0 {
					return nil, nil
				}
				return workertest.Failure(federationv1.Disposition_UNCLEAR, problem.Internal), nil
			}
			_ = end(f, id)
			synctest.Wait()
			if east.Count() != 1 || f.hub.endings.len() != 1 {
				t.Fatalf("%d sandboxes run and %d ends wait", east.Count(), f.hub.endings.len())
			}
			time.Sleep(4 * endingEvery)
			synctest.Wait()
			if east.Count() != 0 || f.hub.endings.len() != 0 {
				t.Errorf("%d sandboxes run on, %d ends wait", east.Count(), f.hub.endings.len())
			}
		})
	}
}

// TestAnEndIsToldAgainWhileKeysAreMissing: the caller got the acknowledgement of the cancel, however long the recovery lasts.
func TestAnEndIsToldAgainWhileKeysAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 3, "west": 3})
		f.create(workertest.Request("k", workertest.Prefer("east")))
		f.loseLedger()
		defer runHub(t, f.hub)()
		f.tell("east")
		east := f.Workers["east"]
		east.SetConnected(false)
		_, err := f.hub.CancelClaim(t.Context(), cancelOf("k"))
		must.Succeed(t, err)
		east.SetConnected(true)
		time.Sleep(2 * endingEvery)
		synctest.Wait()
		if east.Count() != 0 {
			t.Error("the sandbox of a cancelled claim runs on")
		}
		f.wantRecovering("other")
	})
}

var errNotYet = problem.New(problem.Unavailable, "not yet")

// I10: what is remembered of a cluster, and asked of it at once, is bounded; it is retried although there is no room for more. Another
// cluster has its own room.
func TestEndingsAreBounded(t *testing.T) {
	e := newEndings()
	for n := range int32(maxEndings + 1) {
		if added := e.add(ending{cluster: "east", attempt: n}); added != (n < maxEndings) {
			t.Fatalf("end %d is remembered: %t", n, added)
		}
	}
	if !e.add(ending{cluster: "west"}) || e.len() != maxEndings+1 {
		t.Errorf("%d are remembered, want %d of east and west's", e.len(), maxEndings)
	}
	for n := range int32(endingsKept) {
		if added := e.add(ending{cluster: "north", attempt: n + 1}); !added {
			t.Errorf("a cluster with %d has no room", n)
		}
	}
	if e.add(ending{cluster: "north"}) {
		t.Error("a cluster has room beyond its own")
	}
	for n := range int32(endingsKept) {
		e.remove(ending{cluster: "north", attempt: n + 1})
	}
	for range 2 {
		taken := e.take()
		if len(taken) != endingsOfCluster+1 || !slices.Contains(taken, ending{cluster: "west"}) {
			t.Errorf("%d are asked for, want %d of east and west's", len(taken), endingsOfCluster)
		}
		if more := e.take(); len(more) > 0 {
			t.Errorf("%d more are asked for meanwhile", len(more))
		}
		for _, what := range taken {
			if !e.settle(what, errNotYet) {
				t.Errorf("%v is forgotten", what)
			}
			e.over(what, false)
		}
	}
	for _, what := range e.take() {
		e.settle(what, nil)
		e.over(what, false)
	}
	if want := maxEndings - endingsOfCluster; e.len() != want || len(e.take()) != endingsOfCluster {
		t.Errorf("%d are remembered after some were confirmed, want %d", e.len(), want)
	}
}

// I10: all clusters together get no more calls at once than the background has room for, and each gets as many.
func TestManyClustersShareTheRoomForEndings(t *testing.T) {
	e, clusters := newEndings(), mostRepeated/4
	for n := range clusters {
		for attempt := range int32(endingsOfCluster) {
			e.add(ending{cluster: fmt.Sprint("c", n), attempt: attempt})
		}
	}
	taken := map[string]int{}
	for _, what := range e.take() {
		taken[what.cluster]++
	}
	for cluster, n := range taken {
		if n != 4 {
			t.Errorf("%d of %s, want 4", n, cluster)
		}
	}
	if len(taken) != clusters || len(e.take()) > 0 {
		t.Errorf("%d clusters have calls, want %d and no more at once", len(taken), clusters)
	}
}

// I10: an end that follows from a call is sent at once while its cluster may have one more call in flight.
func TestAnEndThatFollowsFromACallWaitsForRoom(t *testing.T) {
	e := newEndings()
	begin := func(what ending, wantNow, wantKept bool) {
		t.Helper()
		if now, kept := e.begin(what); now != wantNow || kept != wantKept {
			t.Errorf("%v is sent now: %t, kept: %t", what, now, kept)
		}
	}
	for n := range int32(endingsOfCluster) {
		begin(ending{cluster: "east", attempt: n}, true, true)
	}
	begin(ending{cluster: "east"}, false, true) // it is in flight
	late := ending{cluster: "east", attempt: endingsOfCluster}
	begin(late, false, true)
	begin(ending{cluster: "west"}, true, true)
	if more := e.take(); len(more) > 0 {
		t.Errorf("%v are sent beside those in flight", more)
	}
	e.settle(ending{cluster: "east"}, nil)
	if next, more := e.over(ending{cluster: "east"}, true); !more || next != late || e.len() != endingsOfCluster+1 {
		t.Errorf("%v is sent next: %t, and %d are remembered", next, more, e.len())
	}
	for n := range int32(maxEndings) {
		e.add(ending{cluster: "north", attempt: n})
	}
	begin(ending{cluster: "north", attempt: maxEndings}, false, false)
}

// I10: a call that was not counted, such as a caller's own, frees no place of one that was, whatever becomes of it.
func TestOnlyTheEndOfACallThatWasCountedFreesItsPlace(t *testing.T) {
	e, late := newEndings(), ending{cluster: "east", attempt: endingsOfCluster}
	for n := range int32(endingsOfCluster) {
		e.begin(ending{cluster: "east", attempt: n})
	}
	for n := range int32(endingsOfCluster) {
		e.settle(ending{cluster: "east", attempt: n}, map[bool]error{true: errNotYet}[n%2 == 0])
	}
	if now, _ := e.begin(late); now || len(e.take()) > 0 {
		t.Errorf("more than %d calls are in flight", endingsOfCluster)
	}
	for n := range int32(endingsOfCluster) {
		e.settle(ending{cluster: "east", attempt: n}, nil)
		e.over(ending{cluster: "east", attempt: n}, false)
	}
	if next := e.take(); !slices.Equal(next, []ending{late}) {
		t.Errorf("%v are sent after all calls have ended", next)
	}
	e.settle(late, nil)
	e.over(late, true)
	if e.asked != 0 || len(e.clusters) > 0 {
		t.Errorf("%d calls of %d clusters are left", e.asked, len(e.clusters))
	}
}

// I7, I10: clusters that are silent leave room for the ends of others, those that follow from calls and those that are repeated. All
// together have no more calls in flight than the background has room for.
func TestSilentClustersLeaveRoomForCallsToOthers(t *testing.T) {
	e := newEndings()
	fill := func(note func(ending)) {
		for n := range mostBegun / endingsOfCluster {
			for attempt := range int32(endingsOfCluster) {
				note(ending{cluster: fmt.Sprint("silent", n), attempt: attempt})
			}
		}
	}
	fill(func(what ending) { e.add(what) })
	if taken := e.take(); len(taken) != mostRepeated {
		t.Errorf("%d are repeated at once, want %d", len(taken), mostRepeated)
	}
	fill(func(what ending) { e.begin(what) })
	if e.asked != mostBegun {
		t.Errorf("%d calls are in flight to silent clusters, want %d", e.asked, mostBegun)
	}
	for n := range int32(fewEndings) {
		if now, _ := e.begin(ending{cluster: "west", attempt: n}); !now {
			t.Errorf("end %d of another cluster waits", n)
		}
	}
	if now, kept := e.begin(ending{cluster: "west", attempt: fewEndings}); now || !kept {
		t.Errorf("a cluster with calls in flight has one more: %t, it waits: %t", now, kept)
	}
	for n := range background.MaxFollowing {
		e.begin(ending{cluster: fmt.Sprint("c", n)})
	}
	if e.asked != background.MaxFollowing {
		t.Errorf("%d calls are in flight, want %d", e.asked, background.MaxFollowing)
	}

	e = newEndings()
	fill(func(what ending) { e.add(what) })
	e.take()
	e.add(ending{cluster: "west"})
	if next := e.take(); !slices.Equal(next, []ending{{cluster: "west"}}) {
		t.Errorf("%v are repeated beside those of silent clusters", next)
	}
}

// The ends of a burst are sent one after another while their cluster confirms them, and wait for no repeats.
func TestABurstOfEndsIsSentAsFastAsItsClusterConfirmsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 10 * time.Millisecond
		f := newFederation(t, map[string]int32{"east": 8 * endingsOfCluster})
		east := f.Workers["east"]
		east.OnCall = func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
			time.Sleep(takes)
			return nil, nil
		}
		f.leaveSandboxes("east", 4*endingsOfCluster)
		time.Sleep(8 * takes)
		synctest.Wait()
		if n := f.hub.endings.len(); east.Count() != 0 || n != 0 {
			t.Errorf("%d sandboxes run on, %d ends wait", east.Count(), n)
		}
	})
}

// AtollEndsUnconfirmed must not fire because a busy cluster always has an end on its way.
func TestAnEndCountsAsUnconfirmedOnceItHasFailed(t *testing.T) {
	e, registry, what := newEndings(), prometheus.NewRegistry(), ending{cluster: "east"}
	newMetrics(registry, e)
	want := func(n float64) {
		t.Helper()
		families, err := registry.Gather()
		must.Succeed(t, err)
		for _, family := range families {
			if family.GetName() == "atoll_hub_ends_unconfirmed" {
				if got := family.GetMetric()[0].GetGauge().GetValue(); got != n {
					t.Errorf("%v ends are unconfirmed, want %v", got, n)
				}
				return
			}
		}
		t.Error("no such metric")
	}
	e.begin(what)
	want(0)
	e.settle(what, errNotYet)
	e.over(what, false)
	want(1)
	e.take()
	want(1)
	e.settle(what, nil)
	e.over(what, true)
	want(0)
}

// len counts all that are remembered.
func (e *endings) len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.total
}

// leaveSandboxes makes so many claims whose callers leave while a cluster grants them.
func (f *federation) leaveSandboxes(cluster string, n int) {
	f.t.Helper()
	for range n {
		ctx, leave := context.WithCancel(f.t.Context())
		f.Workers[cluster].OnClaim = after(leave)
		if _, err := f.hub.Create(ctx, workertest.Request("", workertest.Prefer(cluster))); !errors.Is(err, context.Canceled) {
			f.t.Fatalf("a caller that leaves gets %v", err)
		}
	}
}

// I7, I10: a cluster that responds to no end leaves the background to others, however many callers leave it with a sandbox to end. Each is
// ended in time.
func TestASilentClusterLeavesRoomForWhatFollowsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 4 * endingsOfCluster})
		east := f.Workers["east"]
		var responds atomic.Bool
		east.OnCall = func(ctx context.Context, _ *federationv1.Dispatch) (*federationv1.Answer, error) {
			if responds.Load() {
				return nil, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		f.leaveSandboxes("east", 2*endingsOfCluster)
		if n := f.hub.background.Following(); n != endingsOfCluster || east.Count() != 2*endingsOfCluster {
			t.Errorf("%d calls wait for one cluster with %d sandboxes, want %d", n, east.Count(), endingsOfCluster)
		}
		if n := f.hub.InFlight(); n != 2*endingsOfCluster {
			t.Errorf("%d are in flight, want those that wait for room as well", n)
		}
		responds.Store(true)
		defer runHub(t, f.hub)()
		time.Sleep(calls.Timeout + 3*endingEvery)
		synctest.Wait()
		if n := f.hub.endings.len(); east.Count() != 0 || n != 0 {
			t.Errorf("%d sandboxes run on, %d ends wait", east.Count(), n)
		}
	})
}

// An end for which there is no room is sent once. The log has it if that fails.
func TestAnEndForWhichThereIsNoRoomIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 3})
		var logged []string
		f.hub.log = funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
		for n := range int32(maxEndings) {
			f.hub.endings.add(ending{cluster: "east", attempt: n})
		}
		east, attempt := f.Workers["east"], ending{cluster: "east", hash: workertest.KeyHash("k"), attempt: 1}
		f.leaveSandboxes("east", 1)
		f.hub.endAfter(attempt)
		synctest.Wait()
		if east.Count() != 0 || east.Canceled != 1 {
			t.Errorf("%d sandboxes run on, %d attempts are cancelled", east.Count(), east.Canceled)
		}
		logged = nil
		east.SetConnected(false)
		f.hub.endAfter(attempt)
		synctest.Wait()
		if len(logged) != 1 || !strings.Contains(logged[0], "A cluster has not confirmed an end") {
			t.Errorf("the log has %q", logged)
		}
	})
}

// Of an end that is repeated the log has the first failure alone, also where the end has waited for room.
func TestTheFirstFailureOfAnEndIsLogged(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3})
	logged := 0
	f.hub.log = funcr.New(func(_, _ string) { logged++ }, funcr.Options{})
	f.Workers["east"].SetConnected(false)
	what := ending{cluster: "east", hash: workertest.KeyHash("k"), attempt: 1}
	f.hub.endings.begin(what)
	for range 3 {
		if f.hub.sendEnd(what) {
			t.Error("a cluster that is away has confirmed an end")
		}
	}
	if logged != 1 {
		t.Errorf("%d failures are logged", logged)
	}
}

// I7, I10: a cluster that does not respond takes neither the room nor the background work of others.
func TestASilentClusterLeavesRoomForEndsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 3, "west": 3})
		defer runHub(t, f.hub)()
		id, west := f.create(workertest.Request("", workertest.Prefer("west"))).GetId(), f.Workers["west"]
		f.Workers["east"].OnCall = func(ctx context.Context, _ *federationv1.Dispatch) (*federationv1.Answer, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		for n := range int32(10 * maxEndings) {
			f.hub.endings.add(ending{cluster: "east", hash: workertest.KeyHash("k"), attempt: n})
		}
		time.Sleep(5*endingEvery + time.Millisecond)
		if n := f.hub.background.Following(); n > endingsOfCluster {
			t.Errorf("%d calls wait for one cluster, want %d at most", n, endingsOfCluster)
		}
		west.SetConnected(false)
		_, err := f.hub.End(t.Context(), "west", id)
		workertest.WantReason(t, err, problem.Unavailable)
		west.SetConnected(true)
		time.Sleep(2 * endingEvery)
		synctest.Wait()
		if west.Count() != 0 {
			t.Error("an end is not repeated while another cluster does not respond")
		}
	})
}
