// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory/inventorytest"
)

// slowAPI is a station with idle Pods whose API server holds each patch until respond is closed or gets a value.
func slowAPI(t *testing.T, pods int) (s *station, respond chan struct{}, patches *atomic.Int32) {
	s, respond, patches = newStation(t, 8), make(chan struct{}), new(atomic.Int32)
	for i := range pods {
		s.Appear(s.IdlePod(fmt.Sprint("p", i)))
	}
	s.API.Respond(func(n int, carry func() (*http.Response, error)) (*http.Response, error) {
		if n > 0 {
			patches.Add(1)
			<-respond
		}
		return carry()
	})
	return s, respond, patches
}

func (s *station) assign(ctx context.Context, startup time.Duration) *creating {
	return s.begin(ctx, Claim{Request: &sandboxv1.CreateSandboxRequest{
		Team: "red", User: "ann", Wait: sandboxv1.CreateSandboxRequest_ASSIGNED, StartupTimeout: durationpb.New(startup),
	}, Pool: inventorytest.Pool})
}

func TestSoManyClaimsAreWrittenAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, respond, patches := slowAPI(t, maxWritesIn+2)
		var all []*creating
		for range maxWritesIn + 2 {
			all = append(all, s.assign(t.Context(), time.Minute))
		}
		synctest.Wait()
		if got := patches.Load(); got != maxWritesIn {
			t.Errorf("%d claims are being written, want %d", got, maxWritesIn)
		}
		respond <- struct{}{}
		synctest.Wait()
		if got := patches.Load(); got != maxWritesIn+1 {
			t.Errorf("after one has ended, %d were sent, want %d", got, maxWritesIn+1)
		}
		close(respond)
		for _, c := range all {
			if <-c.done; c.err != nil {
				t.Error(c.err)
			}
		}
		if s.writes.active != 0 || s.writes.waiting != 0 || len(s.writes.namespaces) != 0 {
			t.Errorf("left behind: %+v", s.writes)
		}
	})
}

// fill takes all slots that a team of a namespace can have.
func (w *writes) fill(namespace, team string) []*writeSlot {
	var slots []*writeSlot
	for s := w.enter(namespace, team); s.place == nil; s = w.enter(namespace, team) {
		slots = append(slots, s)
	}
	return slots
}

func TestAClaimThatIsNotWrittenLeavesItsPod(t *testing.T) {
	for name, tc := range map[string]struct {
		startup time.Duration
		leaves  time.Duration // 0: it does not
		ends    time.Duration // one of the writes; 0: none does
		after   time.Duration
		want    problem.Reason
	}{
		"its caller leaves":                 {time.Minute, time.Second, 0, time.Second, problem.Deadline},
		"its deadline":                      {3 * time.Second, 0, 0, 3 * time.Second, problem.Deadline},
		"an API server that does not reply": {time.Minute, 0, 0, maxSilence, problem.Unavailable},
		"one that replies no more":          {time.Minute, 0, 5 * time.Second, 5*time.Second + maxSilence, problem.Unavailable},
		"one that is slow":                  {10 * time.Second, 0, 5 * time.Second, 10 * time.Second, problem.Deadline},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, _ := slowAPI(t, 1)
				slots := s.writes.fill(inventorytest.Pool.Namespace, "red") // and one place before the claim's
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				began := time.Now()
				c := s.assign(ctx, tc.startup)
				if tc.ends > 0 {
					time.AfterFunc(tc.ends, func() { s.writes.done(slots[0], true) })
				}
				if tc.leaves > 0 {
					time.AfterFunc(tc.leaves, leave)
				}
				<-c.done
				if got := problem.FromError(c.err).Reason; got != tc.want || !disposition.Refused(c.err) || time.Since(began) != tc.after {
					t.Errorf("after %s: %v, want %s after %s", time.Since(began), c.err, tc.want, tc.after)
				}
				synctest.Wait()
				if got := s.stats(); got.ReadyIdle != 1 || got.Claiming != 0 {
					t.Errorf("left behind: %+v", got)
				}
			})
		})
	}
}

// TestAnAPIServerThatHangsHoldsUpNoClaimTwice: writes that end without a response are no sign that it responds.
func TestAnAPIServerThatHangsHoldsUpNoClaimTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, patches := slowAPI(t, 2*maxWritesIn+2)
		s.API.Respond(func(n int, carry func() (*http.Response, error)) (*http.Response, error) {
			if n == 0 {
				return carry()
			}
			patches.Add(1)
			time.Sleep(maxSilence) // the timeout of a write
			return nil, context.DeadlineExceeded
		})
		var all []*creating
		began := time.Now()
		for range 2*maxWritesIn + 2 {
			all = append(all, s.assign(t.Context(), time.Minute))
		}
		reasons := map[problem.Reason]int{}
		for _, c := range all {
			<-c.done
			reasons[problem.FromError(c.err).Reason]++
		}
		if reasons[problem.OutcomeUnknown] != maxWritesIn || reasons[problem.Unavailable] != maxWritesIn+2 || patches.Load() != maxWritesIn {
			t.Errorf("%d were sent, %v", patches.Load(), reasons)
		}
		if took := time.Since(began); took != maxSilence {
			t.Errorf("after %s, want %s", took, maxSilence)
		}
	})
}

// enqueue begins the write of a claim. The channel is closed once it has its slot.
func (w *writes) enqueue(t *testing.T, namespace, team string) <-chan struct{} {
	granted := make(chan struct{})
	o := &op{claim: Claim{Pool: types.NamespacedName{Namespace: namespace}}, deadline: time.Now().Add(time.Hour)}
	o.tenant.team = team
	go func() {
		if _, err := w.begin(t.Context(), o); err == nil {
			close(granted)
		} else if t.Context().Err() == nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return granted
}

func isClosed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestWritesKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWrites(clock.RealClock{})
		slots := w.fill("default", "red")
		first := w.enqueue(t, "default", "red")
		time.Sleep(maxSilence - time.Second)
		w.done(slots[0], true) // for the place that fill has left
		second := w.enqueue(t, "default", "red")
		time.Sleep(2 * time.Second) // the first looks at the clock meanwhile
		w.done(slots[1], true)
		if !isClosed(first) || isClosed(second) {
			t.Errorf("the first was written: %t, the second: %t", isClosed(first), isClosed(second))
		}
	})
}

func TestTheTeamWithTheFewestWritesGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWrites(clock.RealClock{})
		slots := w.fill("default", "red")
		red, blue := w.enqueue(t, "default", "red"), w.enqueue(t, "default", "blue")
		w.done(slots[0], true)
		if !isClosed(blue) || isClosed(red) {
			t.Errorf("blue, which has none, was written: %t; red: %t", isClosed(blue), isClosed(red))
		}
	})
}

func TestWritesOfOneNamespaceLeaveSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWrites(clock.RealClock{})
		hung := w.fill("hung", "red")
		if others := w.fill("default", "red"); len(hung) != maxWritesIn || len(others) != maxWrites-maxWritesIn {
			t.Errorf("%d and %d are written at a time", len(hung), len(others))
		}
		waits := w.enqueue(t, "default", "blue")
		w.done(hung[0], true)
		if !isClosed(waits) {
			t.Error("a free slot was not given to the other namespace")
		}
	})
}

func TestAWaitForTheLeaseTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, respond, patches := slowAPI(t, maxWritesIn+1)
		var all []*creating
		for range maxWritesIn + 1 {
			all = append(all, s.assign(t.Context(), time.Minute))
		}
		synctest.Wait()
		s.Lease.Lapsed.Store(true)
		respond <- struct{}{}
		synctest.Wait()
		if got := patches.Load(); got != maxWritesIn+1 {
			t.Errorf("%d were sent while one waits for the lease, want %d", got, maxWritesIn+1)
		}
		close(respond)
		s.Lease.Lapsed.Store(false)
		for _, c := range all {
			if <-c.done; c.err != nil {
				t.Error(c.err)
			}
		}
	})
}
