// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

// keep records a claim of a cluster that expires after a while.
func keep(t *testing.T, l *ledger.Ledger, key, cluster string, state ledger.State, expires time.Duration) {
	t.Helper()
	_, err := l.Save(t.Context(), ledger.KeyHash("", "default", key), ledger.Held{}, &ledger.Record{
		Cluster: cluster, Attempt: 1, State: state, ExpireAt: time.Now().Add(expires),
	})
	must.Succeed(t, err)
}

// looksUpLate is a worker that takes 9 s to find a claim's sandbox.
func looksUpLate(asked *atomic.Int32) func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
	return func(ctx context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
		if d.GetLookup() == nil {
			return nil, nil
		}
		asked.Add(1)
		select {
		case <-time.After(9 * time.Second):
			return workertest.Granted(&sandboxv1.Sandbox{Id: "01hzzzzzzzzzzzzzzzzzzz9999-east"}), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// I10: one sweep drops all that has expired, and nothing else.
func TestASweepDropsAllThatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, file := newFederation(t, map[string]int32{"east": 3}), store.NewMemory()
		f.hub.ledger = ledger.New(file)
		for n := range 2500 {
			keep(t, f.hub.ledger, fmt.Sprint(n), "east", ledger.Ended, -time.Hour)
		}
		keep(t, f.hub.ledger, "later", "east", ledger.Ended, time.Hour)
		defer runHub(t, f.hub)()
		time.Sleep(sweepEvery + time.Second)
		synctest.Wait()
		left, err := file.Range(t.Context(), ledger.ClaimPrefix, "", 0)
		if err != nil || len(left) != 1 || f.record("later") == nil {
			t.Errorf("%d keys are left, want one: %v", len(left), err)
		}
		if n := f.hub.ledger.Usage("").Keys; n != 1 {
			t.Errorf("%d keys count against the quota", n)
		}
	})
}

// I7, I15: a cluster that responds late delays neither the ends of others nor their expired keys.
func TestASlowClusterDelaysNoEndsAndNoExpiryOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 3, "west": 3})
		var asked atomic.Int32
		f.Workers["east"].OnCall = looksUpLate(&asked)
		for n := range 50 {
			keep(t, f.hub.ledger, fmt.Sprint(n), "east", ledger.Returned, -time.Hour)
		}
		keep(t, f.hub.ledger, "ended", "west", ledger.Ended, -time.Minute)
		defer runHub(t, f.hub)()
		id, west := f.create(workertest.Request("", workertest.Prefer("west"))).GetId(), f.Workers["west"]
		time.Sleep(sweepEvery + time.Millisecond)
		fails := true
		west.OnCall = func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
			if !fails {
				return nil, nil
			}
			fails = false
			return workertest.Failure(federationv1.Disposition_UNCLEAR, problem.Internal), nil
		}
		_, _ = f.hub.End(t.Context(), "west", id)
		time.Sleep(3 * endingEvery)
		synctest.Wait()
		if west.Count() != 0 {
			t.Error("an end is not repeated while a sweep waits for another cluster")
		}
		time.Sleep(sweepPatience)
		synctest.Wait()
		if f.record("ended") != nil || f.record("0") == nil || asked.Load() != 2 {
			t.Errorf("after %s a sweep still waits for a cluster that it has asked %d times", sweepPatience, asked.Load())
		}
	})
}

// I7: nor does it delay the claims of a replica that has gone.
func TestASlowClusterDelaysNoResumption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newReplicas(t, map[string]int32{"east": 5, "west": 5}, 0)
		live := func(replica string) bool { return replica != "hub-a" }
		a, b := f.add("hub-a", live), f.add("hub-b", live)
		var away atomic.Bool
		away.Store(true)
		f.Workers["west"].OnClaim = func(ctx context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (
			*federationv1.Answer, error,
		) {
			if away.Load() {
				return hangs(ctx, c, carryOut)
			}
			return carryOut(), nil
		}
		f.Workers["east"].OnCall = looksUpLate(new(atomic.Int32))
		for n := range 50 {
			keep(t, ledger.New(f.memory), fmt.Sprint(n), "east", ledger.Returned, -time.Hour)
		}
		defer runHub(t, b.Service)()
		time.Sleep(sweepEvery + time.Millisecond)
		workertest.Create(t, a, workertest.Request("k", workertest.Prefer("west"), func(r *sandboxv1.CreateSandboxRequest) { r.Wait = noWait }))
		synctest.Wait()
		a.die()
		away.Store(false)
		time.Sleep(resumeEvery + time.Second)
		synctest.Wait()
		if r := f.recordOf("k"); r.State != ledger.Returned {
			t.Errorf("a claim is not resumed while a sweep waits for a cluster: %+v", r)
		}
	})
}

// TestADamagedRecordStopsNothingElse: the hub starts, resumes other claims and drops other keys.
func TestADamagedRecordStopsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 3})
		f.Workers["east"].OnClaim = hangs
		f.create(workertest.Request("open", func(r *sandboxv1.CreateSandboxRequest) { r.Wait = noWait }))
		hash := strings.Repeat("0", 32)
		expired := fmt.Sprintf("expire/%012d/", time.Now().Add(-time.Hour).Unix())
		_, err := f.store.Commit(t.Context(), store.Txn{Puts: []store.Put{
			{Key: ledger.ClaimPrefix + hash, Value: []byte("{")}, {Key: "open/" + hash},
			{Key: expired + ledger.ClaimPrefix + hash}, {Key: "expire/!"},
		}})
		must.Succeed(t, err)
		keep(t, f.hub.ledger, "ended", "east", ledger.Ended, -time.Minute)
		f.restart()
		f.Workers["east"].OnClaim = nil
		defer runHub(t, f.hub)()
		time.Sleep(sweepEvery + time.Second)
		synctest.Wait()
		if r := f.record("open"); r.State != ledger.Returned {
			t.Errorf("an open claim is not resumed: %+v", r)
		}
		if f.record("ended") != nil {
			t.Error("a key that expired later is kept")
		}
		if stored := f.stored(); !strings.Contains(stored, ledger.ClaimPrefix+hash) {
			t.Errorf("the damaged record is not kept: %s", stored)
		}
	})
}
