// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/history/historytest"
	"navix.sh/atoll/worker/internal/sandbox"
)

type leaseHeld struct{}

func (leaseHeld) Held() bool { return true }

// station is a service that leads, with one pool and one node, and fed with events by hand: everything but the API server.
type station struct {
	*Service
	t       *testing.T
	pool    *pool
	version int
}

func newStation(t *testing.T, capacity int32) *station {
	t.Helper()
	s, err := New(Options{
		ClusterID: "east", Pods: &Pods{}, Lease: leaseHeld{}, Time: apitime.New(clock.RealClock{}), QueueCapacity: capacity,
		History: historytest.New(t, clock.RealClock{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.nodeSeen(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	s.poolSeen(&v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}})
	s.serve(t.Context(), t.Context(), nil)
	return &station{Service: s, t: t, pool: s.pools[types.NamespacedName{Namespace: "default", Name: "p"}]}
}

// idlePod is a Pod that can be handed out, newer than all before.
func (s *station) idlePod(name string) *corev1.Pod {
	s.version++
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), Generation: 1, ResourceVersion: strconv.Itoa(s.version),
			Labels: map[string]string{v1alpha1.SandboxPoolLabelKey: "p", v1alpha1.SandboxPhaseLabelKey: string(sandbox.Idle)},
		},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main", Image: "i:1"}}},
		Status: corev1.PodStatus{
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: "i:1", ContainerID: "c", Ready: true, State: running}},
		},
	}
}

// waiter is a claim that has asked for a Pod.
type waiter struct {
	*op
	ctx context.Context
	got *entry
	err error
}

func (s *station) newWaiter(user string, timeout time.Duration) *waiter {
	s.t.Helper()
	r := &sandboxv1.CreateSandboxRequest{Team: "red", User: user, StartupTimeout: durationpb.New(timeout)}
	o, err := s.newOp(Claim{Request: r, Pool: s.pool.key}, s.pool)
	if err != nil {
		s.t.Fatal(err)
	}
	w := &waiter{op: o}
	w.ctx, o.cancel = context.WithCancel(s.t.Context())
	s.t.Cleanup(o.cancel)
	return w
}

// ask has it ask for a Pod, once more if it had one, and answers when it waits or has its answer.
func (s *station) ask(w *waiter) *waiter {
	s.t.Helper()
	w.got, w.err = nil, nil
	go func() { w.got, w.err = s.acquire(w.ctx, w.op) }()
	synctest.Wait()
	return w
}

func (s *station) wants(user string) *waiter {
	s.t.Helper()
	return s.ask(s.newWaiter(user, time.Minute))
}

func (s *station) see(pod *corev1.Pod) {
	s.podSeen(pod)
	synctest.Wait()
}

func (s *station) stats() Stats {
	stats, _ := s.Stats(s.pool.key)
	return stats
}

func (s *station) wantReason(w *waiter, reason problem.Reason) {
	s.t.Helper()
	if w.got != nil || w.err == nil || problem.FromError(w.err).Reason != reason || !isRefusal(w.err) {
		s.t.Errorf("got a Pod: %v, error %v, want a refusal %s", w.got != nil, w.err, reason)
	}
}

// A claim that is canceled as it gets its Pod leaves none behind, whichever of the two it hears of first: the Pod is the
// next one's, or idle. The tenant has lost no turn.
func TestAClaimCanceledAsItGetsItsPodLeavesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		for round := range 64 {
			leaves, stays := s.wants("ann"), s.wants("bob")
			again := s.wants("ann")
			pod := s.idlePod(fmt.Sprint("p", round))
			s.mu.Lock()
			s.Service.see(pod, false)
			s.cancelOp(leaves.op)
			s.unlock()
			synctest.Wait()
			s.wantReason(leaves, problem.NoCapacity)
			if again.got == nil || again.got.pod != pod || stays.got != nil {
				t.Fatalf("round %d: the tenant of the claim that left got its turn: %v, the other one's: %v", round, again.got != nil, stays.got != nil)
			}
			s.mu.Lock()
			s.cancelOp(again.op) // while it is being written: putBack is what a write that did not happen does
			s.putBack(again.got)
			s.unlock()
			synctest.Wait()
			if stays.got == nil || stays.got.pod != pod {
				t.Fatalf("round %d: the next one did not get the Pod", round)
			}
			s.podGone(pod)
		}
		lonely := s.wants("ann")
		s.mu.Lock()
		s.Service.see(s.idlePod("last"), false)
		s.cancelOp(lonely.op)
		s.unlock()
		synctest.Wait()
		s.wantReason(lonely, problem.NoCapacity)
		if got, want := s.stats(), (Stats{ReadyIdle: 1, WaitCapacity: 8}); got != want {
			t.Errorf("left behind: %+v, want %+v", got, want)
		}
	})
}

// A claim that loses its Pod to another writer is where it was: before claims of its tenant that came later, and in the turn
// that it had.
func TestALostPodCostsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		first, second, other := s.wants("ann"), s.wants("ann"), s.wants("bob")
		pod := s.idlePod("a")
		s.see(pod)
		if first.got == nil {
			t.Fatal("the first one got no Pod")
		}
		s.podGone(pod)
		s.ask(first)
		if got := s.stats().Waiting; got != 3 {
			t.Fatalf("%d wait, want 3", got)
		}
		for i, w := range []*waiter{first, other, second} {
			s.see(s.idlePod(fmt.Sprint("b", i)))
			if w.got == nil {
				t.Errorf("Pod %d did not go to whose turn it was", i)
			}
		}
	})
}

// One that had no need to wait keeps its place as well, and is not refused by a queue that has filled up meanwhile.
func TestALostIdlePodCostsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 2)
		pod := s.idlePod("a")
		s.see(pod)
		first := s.wants("ann")
		if first.got == nil {
			t.Fatal("an idle Pod was not handed out")
		}
		s.wants("ann")
		other := s.wants("bob")
		s.podGone(pod)
		s.ask(first)
		s.see(s.idlePod("b"))
		if first.err != nil || first.got == nil || other.got != nil {
			t.Errorf("the first one got %v, %v, the other one a Pod: %v", first.got, first.err, other.got != nil)
		}
	})
}

func TestAFullQueueGivesWayToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 4)
		flood := []*waiter{s.wants("ann"), s.wants("ann"), s.wants("ann"), s.wants("ann")}
		s.wantReason(s.wants("ann"), problem.QueueFull)
		others := []*waiter{s.wants("bob"), s.wants("cat")}
		s.wantReason(flood[3], problem.QueueFull)
		s.wantReason(flood[2], problem.QueueFull)
		s.wantReason(s.wants("ann"), problem.QueueFull)
		s.wantReason(s.wants("bob"), problem.QueueFull) // it would have as many as the tenant that has most
		for i, w := range []*waiter{flood[0], others[0], others[1], flood[1]} {
			s.see(s.idlePod(fmt.Sprint(i)))
			if w.got == nil {
				t.Errorf("Pod %d did not go to whose turn it was: %v", i, w.err)
			}
		}
		if got, want := s.stats(), (Stats{WaitCapacity: 4}); got != want {
			t.Errorf("left behind: %+v, want %+v", got, want)
		}
	})
}

// The queue tells of its first claim and its last one, and of no others.
func TestAQueueTellsThatItBeginsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 4)
		var told []int32
		s.OnQueue(func(pool types.NamespacedName) { told = append(told, s.Waiting(pool)) })
		pod := s.idlePod("a")
		s.see(pod)
		first := s.wants("ann")
		s.wants("ann")
		s.wants("bob")
		s.see(s.idlePod("b"))
		s.see(s.idlePod("c"))
		s.mu.Lock()
		s.putBack(first.got)
		s.unlock()
		if want := []int32{1, 0}; !slices.Equal(told, want) {
			t.Errorf("told of lengths %v, want %v", told, want)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 4)
		short, long := s.ask(s.newWaiter("ann", time.Second)), s.ask(s.newWaiter("ann", time.Hour))
		late := s.newWaiter("ann", time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		s.wantReason(short, problem.Deadline)
		s.wantReason(s.ask(late), problem.Deadline)
		s.see(s.idlePod("a"))
		if long.got == nil {
			t.Error("who had time got no Pod")
		}
		s.see(s.idlePod("b"))
		s.wantReason(s.ask(late), problem.Deadline)
		if got, want := s.stats(), (Stats{ReadyIdle: 1, WaitCapacity: 4}); got != want {
			t.Errorf("left behind: %+v, want %+v", got, want)
		}
	})
}

// Whatever comes and goes in whatever order, no Pod is idle while a claim waits, and none is lost.
func TestNoPodIsIdleWhileAClaimWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 16)
		var holders, waiting []*waiter
		const pods = 5
		for i := range pods {
			s.see(s.idlePod(fmt.Sprint("p", i)))
		}
		for step := range 600 {
			switch {
			case step%3 == 0:
				waiting = append(waiting, s.wants(fmt.Sprint("user", step%4)))
			case step%7 == 0 && len(waiting) > 0:
				s.mu.Lock()
				s.cancelOp(waiting[0].op)
				s.unlock()
			case step%2 == 0 && len(holders) > 0:
				s.mu.Lock()
				s.putBack(holders[0].got)
				s.unlock()
				holders = holders[1:]
			}
			synctest.Wait()
			var still []*waiter
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
