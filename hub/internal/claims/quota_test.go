// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

// big is a request with as many bytes of metadata as a caller may send.
func big(r *sandboxv1.CreateSandboxRequest) {
	r.Metadata = map[string]string{}
	for n := range 30 {
		r.Metadata[fmt.Sprint("k", n)] = strings.Repeat("x", 1000)
	}
}

// settleDown waits until the background writes of returned calls are durable.
func settleDown() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// TestI14ARefusedClaimKeepsNoRequest, and is dropped soon; until then it conflicts with other parameters like any other, and its
// next attempt follows.
func TestI14ARefusedClaimKeepsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 3})
		f.Workers["east"].OnClaim = refuse(f.Workers["east"], problem.NoCapacity)
		f.wantReason(problem.NoCapacity, workertest.Request("k", big))
		settleDown()
		entry, ok, err := f.store.Get(t.Context(), ledger.ClaimPrefix+ledger.KeyHash("", "default", "k"))
		if err != nil || !ok || len(entry.Value) > 4<<10 {
			t.Fatalf("a refused claim takes %d bytes: %v", len(entry.Value), err)
		}
		f.wantReason(problem.ClaimKeyConflict, workertest.Request("k"))
		f.Workers["east"].OnClaim = nil
		if got := f.create(workertest.Request("k", big)); got.GetPhase() != sandboxv1.Phase_RUNNING || f.record("k").Attempt != 2 {
			t.Errorf("then: %v under attempt %d", got, f.record("k").Attempt)
		}
		settleDown()
		if f.record("k").State != ledger.Returned || len(f.record("k").Digest) > 0 || len(f.record("k").Request) < 30_000 {
			t.Errorf("granted: %s with %d bytes", f.record("k").State, len(f.record("k").Request))
		}

		f.Workers["east"].OnClaim = refuse(f.Workers["east"], problem.NoCapacity)
		f.wantReason(problem.NoCapacity, workertest.Request("gone", big))
		settleDown()
		time.Sleep(refusedRetention - time.Minute)
		if err := f.hub.sweep(t.Context()); err != nil || f.record("gone") == nil {
			t.Errorf("dropped while a worker remembers the refusal: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if err := f.hub.sweep(t.Context()); err != nil || f.record("gone") != nil {
			t.Errorf("a refused claim is kept: %v", err)
		}
	})
}

// TestI14ATeamKeepsNoMoreKeysThanItsQuota, nor more bytes; other teams, and its own keys and claims without one, are served.
func TestI14ATeamKeepsNoMoreKeysThanItsQuota(t *testing.T) {
	for name, quota := range map[string]Quota{"keys": {Keys: 3, Bytes: 1 << 30}, "bytes": {Keys: 1000, Bytes: 150 << 10}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"east": 50})
			f.hub.quota = quota
			team := func(p principal.Principal, key string) (*sandboxv1.Sandbox, error) {
				s, err := f.hub.Create(principal.With(t.Context(), p), workertest.Request(key, big))
				settleDown()
				return s, err
			}
			mine := principal.Principal{Name: "a", Team: "t", AllNamespaces: true}
			first, err := team(mine, "k1")
			for n := 2; n <= 3 && err == nil; n++ {
				_, err = team(mine, fmt.Sprint("k", n))
			}
			if err != nil {
				t.Fatalf("%s: within the quota: %v", name, err)
			}
			_, err = team(mine, "k4")
			workertest.WantReason(t, err, problem.RateLimited)
			if problem.FromError(err).RetryAfter == 0 {
				t.Errorf("%s: no advice when to come again", name)
			}
			if again, err := team(mine, "k1"); err != nil || again.GetId() != first.GetId() {
				t.Errorf("%s: its own key: %v, %v", name, again, err)
			}
			if _, err := team(mine, ""); err != nil {
				t.Errorf("%s: without a key: %v", name, err)
			}
			for _, p := range []principal.Principal{
				{Name: "b", Team: "u", AllNamespaces: true}, {AllTeams: true, AllNamespaces: true}, {Name: "c", Namespaces: []string{"default"}},
			} {
				if _, err := team(p, "k4"); err != nil {
					t.Errorf("%s: another caller, %v: %v", name, p, err)
				}
			}
			// Another process counts the existing records.
			f.restart()
			f.hub.quota = quota
			f.hub.count(t.Context())
			_, err = team(mine, "k5")
			workertest.WantReason(t, err, problem.RateLimited)
			ended := workertest.Ended(first, "k1", 1)
			ended.Sandboxes[0].KeyHash = ledger.KeyHash("t", "default", "k1")
			must.Succeed(t, f.hub.OnEnded(t.Context(), "east", ended))
			time.Sleep(DefaultRetention + time.Minute)
			must.Succeed(t, f.hub.sweep(t.Context()))
			if _, err := team(mine, "k5"); err != nil {
				t.Errorf("%s: with one key less: %v", name, err)
			}
		})
	}
}

// TestI14ACallerWithoutATeamIsChargedItself if it is restricted; because it could name any team.
func TestI14ACallerWithoutATeamIsChargedItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 50})
		f.hub.quota = Quota{Keys: 2, Bytes: 1 << 30}
		ctx := principal.With(t.Context(), principal.Principal{Name: "a", User: "u", AllTeams: true, AllNamespaces: true})
		for n := range 3 {
			_, err := f.hub.Create(ctx, workertest.Request("k", func(r *sandboxv1.CreateSandboxRequest) { r.Team = fmt.Sprint("t", n) }))
			settleDown()
			if n == 2 {
				workertest.WantReason(t, err, problem.RateLimited)
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}
