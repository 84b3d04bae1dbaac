// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/pace"
)

// I14: a cluster that attaches in a loop waits for its Welcome, then is refused; another cluster does not wait, and the first one is
// welcome again once it has been quiet.
func TestI14AClusterThatAttachesInALoopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{opts: Options{Clock: clock.RealClock{}}, attaches: pace.New[string](attachLimits, clock.RealClock{})}
		const long = time.Minute
		began, welcomed := time.Now(), 0
		for time.Since(began) < long {
			if err := s.throttle(t.Context(), "evil"); err != nil {
				t.Fatal(err)
			}
			welcomed++
		}
		if most := attachesAtOnce + int(long.Seconds())*attachesPerSecond + 1; welcomed > most || welcomed < most-2 {
			t.Errorf("a cluster was welcomed %d times in %s, want %d", welcomed, long, most)
		}
		// Several streams at once: those that would wait too long are refused, and cost nothing further.
		waiting := make(chan error, 50)
		for range cap(waiting) {
			go func() { waiting <- s.throttle(t.Context(), "evil") }()
		}
		refused := 0
		for range cap(waiting) {
			if err := <-waiting; status.Code(err) == codes.ResourceExhausted {
				refused++
			}
		}
		if refused < 35 || refused > 45 {
			t.Errorf("%d of 50 were refused, want about 40", refused)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := s.throttle(ctx, "evil"); status.Code(err) != codes.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a stream that has ended: %v", err)
		}
		began = time.Now()
		if err := s.throttle(t.Context(), "honest"); err != nil || time.Since(began) > 0 {
			t.Errorf("another cluster waited %s: %v", time.Since(began), err)
		}
		time.Sleep(long) // of the fake clock
		began = time.Now()
		if err := s.throttle(t.Context(), "evil"); err != nil || time.Since(began) > 0 {
			t.Errorf("a cluster that was quiet waited %s: %v", time.Since(began), err)
		}
	})
}

// I14: the pace counts streams, before their Welcome.
func TestI14TheWelcomeWaits(t *testing.T) {
	h := newHub(t, handler{})
	h.server.attaches = pace.New[string](pace.Limits{Rate: 1e-3, Burst: time.Second, Least: 1}, clock.RealClock{})
	h.server.attaches.Take("a", 1)
	late := h.dial("a")
	late.sendHello(&federationv1.Hello{Incarnation: 1})
	if frame, err := late.stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a cluster over its pace is told %v, %v", frame, err)
	}
	h.begin("b") // another one is welcome
}
