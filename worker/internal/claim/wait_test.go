// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/history/historytest"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/inventory/inventorytest"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxes"
)

// station is a service that leads, with one pool and one node, and events from the test: everything but the API server.
type station struct {
	*Service
	*inventorytest.Station
	t *testing.T
}

func newStation(t *testing.T, capacity int32) *station {
	t.Helper()
	at := inventorytest.New(t)
	sb, err := sandboxes.New(at.Inventory, sandboxes.Options{History: historytest.New(t, clock.RealClock{})})
	must.Succeed(t, err)
	s, err := New(at.Inventory, sb, Options{QueueCapacity: capacity})
	must.Succeed(t, err)
	at.Lead()
	return &station{Service: s, Station: at, t: t}
}

// asker is a claim that has asked for a Pod.
type asker struct {
	*op
	ctx context.Context
	got *inventory.Hold
	err error
}

func (s *station) newAsker(user string, timeout time.Duration) *asker {
	s.t.Helper()
	r := &sandboxv1.CreateSandboxRequest{Team: "red", User: user, StartupTimeout: durationpb.New(timeout)}
	var o *op
	var err error
	s.update(func(l locked) {
		o, err = l.newOp(Claim{Request: r, Pool: inventorytest.Pool}, l.Pool(inventorytest.Pool))
	})
	must.Succeed(s.t, err)
	w := &asker{op: o}
	w.ctx, o.cancel = context.WithCancel(s.t.Context())
	s.t.Cleanup(o.cancel)
	return w
}

// ask makes it ask for a Pod, again if it had one, and returns when it waits or has its result.
func (s *station) ask(w *asker) *asker {
	s.t.Helper()
	w.got, w.err = nil, nil
	go func() { w.got, w.err = s.acquire(w.ctx, w.op) }()
	synctest.Wait()
	return w
}

func (s *station) wants(user string) *asker {
	s.t.Helper()
	return s.ask(s.newAsker(user, time.Minute))
}

func (s *station) stats() Stats {
	stats, _ := s.Stats(inventorytest.Pool)
	return stats
}

// held returns the Pod that was handed to a claim; nil for none.
func (s *station) held(w *asker) (pod *corev1.Pod) {
	if w.got != nil {
		s.View(func(v *inventory.View) { pod = v.Held(w.got) })
	}
	return pod
}

func (s *station) wantReason(w *asker, reason problem.Reason) {
	s.t.Helper()
	if w.got != nil || w.err == nil || problem.FromError(w.err).Reason != reason || !disposition.Refused(w.err) {
		s.t.Errorf("got a Pod: %v, error %v, want a refusal %s", w.got != nil, w.err, reason)
	}
}

// A claim that is canceled as it gets its Pod leaves none behind, whichever of the two it sees first: the Pod goes to the next
// claim, or is idle. The tenant has lost no turn.
func TestAClaimCanceledAsItGetsItsPodLeavesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		for round := range 64 {
			leaves, stays := s.wants("ann"), s.wants("bob")
			again := s.wants("ann")
			pod := s.IdlePod(fmt.Sprint("p", round))
			s.update(func(l locked) {
				l.SeeEvent(pod)
				l.abort(leaves.op)
			})
			synctest.Wait()
			s.wantReason(leaves, problem.NoCapacity)
			if s.held(again) != pod || stays.got != nil {
				t.Fatalf("round %d: the tenant of the claim that left got its turn: %v, the other one's: %v", round, again.got != nil, stays.got != nil)
			}
			s.update(func(l locked) {
				l.abort(again.op) // while it is being written: Return is what a write that did not happen does
				l.Return(again.got)
			})
			synctest.Wait()
			if s.held(stays) != pod {
				t.Fatalf("round %d: the next one did not get the Pod", round)
			}
			s.Gone(pod)
		}
		lonely := s.wants("ann")
		s.update(func(l locked) {
			l.SeeEvent(s.IdlePod("last"))
			l.abort(lonely.op)
		})
		synctest.Wait()
		s.wantReason(lonely, problem.NoCapacity)
		if got, want := s.stats(), (Stats{ReadyIdle: 1, WaitCapacity: 8}); got != want {
			t.Errorf("left behind: %+v, want %+v", got, want)
		}
	})
}

// A claim that loses its Pod to another writer returns to its place: before later claims of its tenant, and with the turn that it
// had.
func TestALostPodCostsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		first, second, other := s.wants("ann"), s.wants("ann"), s.wants("bob")
		pod := s.IdlePod("a")
		s.See(pod)
		if first.got == nil {
			t.Fatal("the first one got no Pod")
		}
		s.Gone(pod)
		s.ask(first)
		if got := s.stats().Waiting; got != 3 {
			t.Fatalf("%d wait, want 3", got)
		}
		for i, w := range []*asker{first, other, second} {
			s.See(s.IdlePod(fmt.Sprint("b", i)))
			if w.got == nil {
				t.Errorf("Pod %d did not go to whose turn it was", i)
			}
		}
	})
}

// A claim that did not have to wait keeps its place as well, and is not refused by a queue that has filled up meanwhile.
func TestALostIdlePodCostsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 2)
		pod := s.IdlePod("a")
		s.See(pod)
		first := s.wants("ann")
		if first.got == nil {
			t.Fatal("an idle Pod was not handed out")
		}
		s.wants("ann")
		other := s.wants("bob")
		s.Gone(pod)
		s.ask(first)
		s.See(s.IdlePod("b"))
		if first.err != nil || first.got == nil || other.got != nil {
			t.Errorf("the first one got %v, %v, the other one a Pod: %v", first.got, first.err, other.got != nil)
		}
	})
}

func TestAFullQueueGivesWayToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 4)
		flood := []*asker{s.wants("ann"), s.wants("ann"), s.wants("ann"), s.wants("ann")}
		s.wantReason(s.wants("ann"), problem.QueueFull)
		others := []*asker{s.wants("bob"), s.wants("cat")}
		s.wantReason(flood[3], problem.QueueFull)
		s.wantReason(flood[2], problem.QueueFull)
		s.wantReason(s.wants("ann"), problem.QueueFull)
		s.wantReason(s.wants("bob"), problem.QueueFull) // it would have as many as the tenant that has most
		for i, w := range []*asker{flood[0], others[0], others[1], flood[1]} {
			s.See(s.IdlePod(fmt.Sprint(i)))
			if w.got == nil {
				t.Errorf("Pod %d did not go to whose turn it was: %v", i, w.err)
			}
		}
		if got, want := s.stats(), (Stats{WaitCapacity: 4}); got != want {
			t.Errorf("left behind: %+v, want %+v", got, want)
		}
	})
}

// The queue reports its first claim and its last one, and no others.
func TestAQueueTellsThatItBeginsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 4)
		var lengths []int32
		s.OnQueue(func(pool types.NamespacedName) { lengths = append(lengths, s.Waiting(pool)) })
		pod := s.IdlePod("a")
		s.See(pod)
		first := s.wants("ann")
		s.wants("ann")
		s.wants("bob")
		s.See(s.IdlePod("b"))
		s.See(s.IdlePod("c"))
		s.update(func(l locked) { l.Return(first.got) })
		if want := []int32{1, 0}; !slices.Equal(lengths, want) {
			t.Errorf("notified of lengths %v, want %v", lengths, want)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 4)
		short, long := s.ask(s.newAsker("ann", time.Second)), s.ask(s.newAsker("ann", time.Hour))
		late := s.newAsker("ann", time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		s.wantReason(short, problem.Deadline)
		s.wantReason(s.ask(late), problem.Deadline)
		s.See(s.IdlePod("a"))
		if long.got == nil {
			t.Error("who had time got no Pod")
		}
		s.See(s.IdlePod("b"))
		s.wantReason(s.ask(late), problem.Deadline)
		if got, want := s.stats(), (Stats{ReadyIdle: 1, WaitCapacity: 4}); got != want {
			t.Errorf("left behind: %+v, want %+v", got, want)
		}
	})
}

// In any order of events, no Pod is idle while a claim waits, and none is lost.
func TestNoPodIsIdleWhileAClaimWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 16)
		var holders, waiting []*asker
		const pods = 5
		for i := range pods {
			s.See(s.IdlePod(fmt.Sprint("p", i)))
		}
		for step := range 600 {
			switch {
			case step%3 == 0:
				waiting = append(waiting, s.wants(fmt.Sprint("user", step%4)))
			case step%7 == 0 && len(waiting) > 0:
				s.update(func(l locked) { l.abort(waiting[0].op) })
			case step%2 == 0 && len(holders) > 0:
				s.update(func(l locked) { l.Return(holders[0].got) })
				holders = holders[1:]
			}
			synctest.Wait()
			var still []*asker
			for _, w := range waiting {
				switch {
				case w.got != nil:
					holders = append(holders, w)
				case w.err == nil:
					still = append(still, w)
				}
			}
			waiting = still
			got := s.stats()
			if got.ReadyIdle > 0 && got.Waiting > 0 || int(got.Waiting) != len(waiting) || int(got.ReadyIdle)+len(holders) != pods {
				t.Fatalf("step %d: %+v, of %d Pods %d taken, %d claims wait", step, got, pods, len(holders), len(waiting))
			}
		}
	})
}

func (s *station) keyed(key string, attempt int32) Claim {
	return Claim{
		Request: &sandboxv1.CreateSandboxRequest{Team: "red", User: "ann", ClaimKey: key, Wait: sandboxv1.CreateSandboxRequest_ASSIGNED},
		Pool:    inventorytest.Pool, KeyHash: sandbox.KeyHash("red", "default", key), Attempt: attempt,
	}
}
