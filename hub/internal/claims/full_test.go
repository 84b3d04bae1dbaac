// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

// disk is a store on a disk that can be full: package store tests that a real one behaves so.
type disk struct {
	store.Store
	full atomic.Bool
}

func (d *disk) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	if d.full.Load() {
		return 0, syscall.ENOSPC
	}
	return d.Store.Commit(ctx, txn)
}

// TestWithTheDiskFull keyed claims fail and change nothing, everything else goes on, and with room again all is as before.
func TestWithTheDiskFull(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 9})
	d := &disk{Store: f.store}
	f.store = d
	f.restart()
	before := f.create(request("before"))
	f.restart() // so that the answer is written down
	d.full.Store(true)
	_, err := f.hub.Create(t.Context(), request("k"))
	wantReason(t, err, problem.Unavailable)
	if n := len(f.workers["east"].claims()); n != 1 {
		t.Errorf("I2: %d dispatches, one has a record", n)
	}
	plain := f.create(request(""))
	if _, err := f.hub.Release(t.Context(), plain.GetId()); err != nil || f.workers["east"].releases() != 1 {
		t.Errorf("a release that needs no writing down: %v", err)
	}
	f.wantAnswer("before", before.GetId())
	// The worker's record of the end is lost with the worker unless it is stored here. A hub that knew nothing of the end either
	// would have the key claimed again.
	_, err = f.hub.Release(t.Context(), before.GetId())
	wantReason(t, err, problem.Unavailable)
	if n := f.workers["east"].releases(); n != 1 {
		t.Errorf("I2: %d releases of a claim key's sandbox, with nothing written down", n-1)
	}
	if err := f.hub.OnEnded(t.Context(), "east", endedOf(before, "before", 1)); err == nil {
		t.Error("a terminal record is acknowledged that is not stored")
	}
	d.full.Store(false)
	if err := f.hub.OnEnded(t.Context(), "east", endedOf(before, "before", 1)); err != nil {
		t.Error(err)
	}
	if got := f.create(request("before")); got.GetStopReason() != "Completed" {
		t.Errorf("its record: %v", got)
	}

	// The disk fills between the write before the dispatch and the one behind the answer.
	f.workers["east"].onClaim = func(_ context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
		d.full.Store(true)
		return carryOut(), nil
	}
	k := f.create(request("k"))
	f.restart()
	d.full.Store(false)
	f.wantAnswer("k", k.GetId())
}
