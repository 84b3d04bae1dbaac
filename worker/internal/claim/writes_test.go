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
		s, respond, patches := slowAPI(t, maxWrites+2)
		var all []*creating
		for range maxWrites + 2 {
			all = append(all, s.assign(t.Context(), time.Minute))
		}
		synctest.Wait()
		if got := patches.Load(); got != maxWrites {
			t.Errorf("%d claims are being written, want %d", got, maxWrites)
		}
		respond <- struct{}{}
		synctest.Wait()
		if got := patches.Load(); got != maxWrites+1 {
			t.Errorf("after one has ended, %d were sent, want %d", got, maxWrites+1)
		}
		close(respond)
		for _, c := range all {
			if <-c.done; c.err != nil {
				t.Error(c.err)
			}
		}
	})
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
		"one that is slow":                  {10 * time.Second, 0, 5 * time.Second, 10 * time.Second, problem.Deadline},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, _ := slowAPI(t, 1)
				for range maxWrites {
					s.writes.slots <- struct{}{}
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				began := time.Now()
				c := s.assign(ctx, tc.startup)
				if tc.ends > 0 {
					time.AfterFunc(tc.ends, s.writes.end)
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
