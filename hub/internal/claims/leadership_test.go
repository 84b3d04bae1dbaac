// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/workertest"
)

// TestOpenClaimsOfADeadReplicaAreResumedOnce, by the one replica that leads: at once where a hint says that the replica has
// gone, and after a while without one.
func TestOpenClaimsOfADeadReplicaAreResumedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		live  func(string) bool
		after time.Duration
	}{
		"hint":       {func(replica string) bool { return replica != "hub-a" }, 2 * resumeEvery},
		"no hint":    {nil, goneAfter + 2*resumeEvery},
		"wrong hint": {func(string) bool { return true }, liveAfter + 2*resumeEvery},
	} {
		bubble(t, name, func(t *testing.T) {
			f := newReplicas(t, map[string]int32{"east": 5}, 0)
			a, others := f.add("hub-a", tt.live), []*replica{f.add("hub-b", tt.live), f.add("hub-c", tt.live)}
			f.Workers["east"].OnClaim = hangs
			open := workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Wait = noWait })
			if got := workertest.Create(t, a, open); got.GetPhase() != sandboxv1.Phase_PENDING {
				t.Fatalf("%v", got)
			}
			synctest.Wait()
			a.die()
			f.Workers["east"].OnClaim = nil
			ctx, end := context.WithCancel(t.Context())
			var running sync.WaitGroup
			for _, r := range others {
				running.Go(func() {
					if err := r.Run(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			if tt.after > goneAfter/2 {
				time.Sleep(tt.after / 2)
				if f.live() > 0 {
					t.Error("resumed while its replica may be there")
				}
			}
			time.Sleep(tt.after)
			end()
			running.Wait()
			if diff := cmp.Diff([]string{"k/1", "k/1"}, f.Workers["east"].Claims()); diff != "" {
				t.Errorf("dispatches (-want +got):\n%s", diff)
			}
			if r := f.recordOf("k"); r.State != ledger.Returned || f.live() != 1 {
				t.Errorf("%d sandboxes, record %+v", f.live(), r)
			}
		})
	}
}

// The next leader leaves a claim to the replica that resumed it.
func TestAResumedClaimIsItsNewReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5}, 0)
		live := func(replica string) bool { return replica != "hub-a" }
		a, others := f.add("hub-a", live), []*replica{f.add("hub-b", live), f.add("hub-c", live)}
		f.Workers["east"].OnClaim = hangs
		workertest.Create(t, a, workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Wait = noWait }))
		synctest.Wait()
		a.die()
		for _, r := range others {
			end := runHub(t, r.Service)
			time.Sleep(2 * resumeEvery)
			end()
		}
		if diff := cmp.Diff([]string{"k/1", "k/1"}, f.Workers["east"].Claims()); diff != "" || f.recordOf("k").Replica != "hub-b" {
			t.Errorf("record of %s, dispatches (-want +got):\n%s", f.recordOf("k").Replica, diff)
		}
	})
}

// A replica that comes back under its name resumes its claims itself.
func TestAReplicaThatRestartsResumesItsOpenClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5}, 1)
		f.Workers["east"].OnClaim = hangs
		workertest.Create(t, f.replicas[0], workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Wait = noWait }))
		synctest.Wait()
		f.replicas[0].die()
		f.Workers["east"].OnClaim = nil
		again := f.add("hub-0", func(string) bool { return true })
		end := runHub(t, again.Service)
		time.Sleep(time.Second)
		end()
		if f.recordOf("k").State != ledger.Returned || f.live() != 1 {
			t.Errorf("%d sandboxes, record %+v", f.live(), f.recordOf("k"))
		}
	})
}

// TestOneReplicaSweeps, and another does when that one has ended.
func TestOneReplicaSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5}, 3)
		var ends []func()
		for _, r := range f.replicas {
			ends = append(ends, runHub(t, r.Service))
		}
		sweepers := func() (who []int) {
			for _, r := range f.replicas {
				r.sweeps.Store(0)
			}
			time.Sleep(2*sweepEvery + time.Second)
			for i, r := range f.replicas {
				if r.sweeps.Load() > 0 {
					who = append(who, i)
				}
			}
			return who
		}
		s := workertest.Create(t, f.replicas[0], workertest.Request("k"))
		must.Succeed(t, f.replicas[0].OnEnded(t.Context(), "east", workertest.Ended(s, "k", 1)))
		first := sweepers()
		if len(first) != 1 {
			t.Fatalf("replicas %v sweep", first)
		}
		ends[first[0]]()
		time.Sleep(DefaultRetention)
		if second := sweepers(); len(second) != 1 || second[0] == first[0] {
			t.Errorf("replicas %v sweep after %v has ended", second, first)
		}
		if left, err := f.memory.Range(t.Context(), "", "", 0); err != nil || len(left) > 0 {
			t.Errorf("left in the store: %v %v", left, err)
		}
		for _, end := range ends {
			end()
		}
	})
}
