// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

// disk is a store on a disk that can be full; package store tests that a real one behaves so.
type disk struct {
	store.Store
	full  atomic.Bool
	fails atomic.Int32 // so many writes fail
}

func (d *disk) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	if d.full.Load() || d.fails.Add(-1) >= 0 {
		return 0, syscall.ENOSPC
	}
	return d.Store.Commit(ctx, txn)
}

// TestWithTheDiskFull claims with a key fail and change nothing, everything else continues, and with room again all is as before.
func TestWithTheDiskFull(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 9})
	d := &disk{Store: f.store}
	f.store = d
	f.restart()
	before := f.create(workertest.Request("before"))
	f.restart() // so that what was returned is durable
	d.full.Store(true)
	f.wantReason(problem.Unavailable, workertest.Request("k"))
	if n := len(f.Workers["east"].Claims()); n != 1 {
		t.Errorf("I2: %d dispatches, one has a record", n)
	}
	plain := f.create(workertest.Request(""))
	if _, err := f.hub.End(t.Context(), "east", plain.GetId()); err != nil || f.Workers["east"].Releases() != 1 {
		t.Errorf("a release that needs no writing down: %v", err)
	}
	f.wantAnswer("before", before.GetId())
	// The worker's record of the end is lost with the worker unless it is stored here. A hub without it would claim the key
	// again.
	_, err := f.hub.End(t.Context(), "east", before.GetId())
	workertest.WantReason(t, err, problem.Unavailable)
	if n := f.Workers["east"].Releases(); n != 1 {
		t.Errorf("I2: %d releases of a claim key's sandbox, with nothing written down", n-1)
	}
	if err := f.hub.OnEnded(t.Context(), "east", workertest.Ended(before, "before", 1)); err == nil {
		t.Error("a terminal record is acknowledged that is not stored")
	}
	d.full.Store(false)
	if err := f.hub.OnEnded(t.Context(), "east", workertest.Ended(before, "before", 1)); err != nil {
		t.Error(err)
	}
	if got := f.create(workertest.Request("before")); got.GetStopReason() != "Completed" {
		t.Errorf("its record: %v", got)
	}

	// The disk fills between the write before the dispatch and the one after the response.
	f.Workers["east"].OnClaim = after(func() { d.full.Store(true) })
	k := f.create(workertest.Request("k"))
	f.restart()
	d.full.Store(false)
	f.wantAnswer("k", k.GetId())
}

// TestARecoverySurvivesAWriteThatFailed: the hub does not request a cluster's key index again, because its digest matches.
func TestARecoverySurvivesAWriteThatFailed(t *testing.T) {
	for _, adopts := range []bool{true, false} { // either write may be the one
		synctest.Test(t, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"east": 3})
			k := f.create(workertest.Request("k"))
			f.loseLedger()
			f.hub.Close()
			d := &disk{Store: f.store}
			f.store = d
			f.reopen()
			index := []*federationv1.KeyHolder{{KeyHash: ledger.KeyHash("", "default", "k"), Attempt: 1, SandboxId: k.GetId(), PodUid: "pod"}}
			if !adopts {
				index = nil
				f.Workers["east"].Forget()
			}
			d.fails.Store(1)
			f.hub.OnKeys("east", index)
			synctest.Wait()
			f.wantRecovering("k")
			time.Sleep(time.Minute) // of the test's clock
			if got := f.create(workertest.Request("k")); adopts && got.GetId() != k.GetId() {
				t.Errorf("I2: answered %s, want %s", got.GetId(), k.GetId())
			}
		})
	}
}

// TestWhatARestoredEtcdLostIsRecordedOnceTheDiskHasRoom, and once the cluster responds.
func TestWhatARestoredEtcdLostIsRecordedOnceTheDiskHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 3})
		d := &disk{Store: f.store}
		f.store = d
		f.restart()
		f.create(workertest.Request("k"))
		f.restart() // so that what was returned is durable
		f.Workers["east"].Forget()
		f.Workers["east"].SetConnected(false)
		d.full.Store(true)
		f.hub.OnRestored("east", nil)
		time.Sleep(time.Minute)
		f.Workers["east"].SetConnected(true)
		time.Sleep(mostLostPause)
		d.full.Store(false)
		time.Sleep(mostLostPause)
		if got := f.record("k").State; got != ledger.Ended {
			t.Errorf("k is %s", got)
		}
	})
}
