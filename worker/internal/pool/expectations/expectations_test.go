// SPDX-License-Identifier: Apache-2.0

package expectations

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
)

var (
	thisPool  = types.NamespacedName{Namespace: "default", Name: "this"}
	otherPool = types.NamespacedName{Namespace: "default", Name: "other"}
)

func TestExpectationsSettle(t *testing.T) {
	tests := map[string]struct {
		do      func(*Expectations, *testclock.FakePassiveClock)
		settled bool
	}{
		"nothing expected":       {do: func(*Expectations, *testclock.FakePassiveClock) {}, settled: true},
		"creation not seen":      {do: func(e *Expectations, _ *testclock.FakePassiveClock) { e.ExpectCreation(thisPool, "a") }},
		"deletion not seen":      {do: func(e *Expectations, _ *testclock.FakePassiveClock) { e.ExpectDeletion(thisPool, "u") }},
		"another pool's":         {do: func(e *Expectations, _ *testclock.FakePassiveClock) { e.ExpectCreation(otherPool, "a") }, settled: true},
		"a write holds only its": {do: func(e *Expectations, _ *testclock.FakePassiveClock) { e.Wrote(thisPool, "u", "7") }, settled: true},
		"creation seen": {do: func(e *Expectations, _ *testclock.FakePassiveClock) {
			e.ExpectCreation(thisPool, "a")
			e.CreationSeen(thisPool, "a")
		}, settled: true},
		"another Pod's creation satisfies nothing": {do: func(e *Expectations, _ *testclock.FakePassiveClock) {
			e.ExpectCreation(thisPool, "a")
			e.CreationSeen(thisPool, "b")
		}},
		"deletion seen": {do: func(e *Expectations, _ *testclock.FakePassiveClock) {
			e.ExpectDeletion(thisPool, "u")
			e.DeletionSeen(thisPool, "u")
		}, settled: true},
		"created and gone before it was seen": {do: func(e *Expectations, _ *testclock.FakePassiveClock) {
			e.ExpectCreation(thisPool, "a")
			e.PodGone(thisPool, "a", "u")
		}, settled: true},
		"just before the TTL": {do: func(e *Expectations, clk *testclock.FakePassiveClock) {
			e.ExpectCreation(thisPool, "a")
			clk.SetTime(clk.Now().Add(ttl))
		}},
		"after the TTL": {do: func(e *Expectations, clk *testclock.FakePassiveClock) {
			e.ExpectCreation(thisPool, "a")
			e.ExpectDeletion(thisPool, "u")
			clk.SetTime(clk.Now().Add(ttl + 1))
		}, settled: true},
		"forgotten": {do: func(e *Expectations, _ *testclock.FakePassiveClock) {
			e.ExpectCreation(thisPool, "a")
			e.Forget(thisPool)
		}, settled: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clk := testclock.NewFakePassiveClock(time.Unix(0, 0))
			e := New(clk)
			tt.do(e, clk)
			if got := e.Settled(thisPool); got != tt.settled {
				t.Errorf("settled = %v, want %v", got, tt.settled)
			}
		})
	}
}

func TestStalePods(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Unix(0, 0))
	e := New(clk)
	stale := func(uid types.UID, cached string, want bool) {
		t.Helper()
		if got := e.Stale(thisPool, uid, cached); got != want {
			t.Errorf("stale(%s at %s) = %v, want %v", uid, cached, got, want)
		}
	}
	stale("u", "9", false)
	e.Wrote(thisPool, "u", "10")
	stale("u", "9", true)
	stale("v", "9", false)
	stale("u", "10", false)
	stale("u", "9", false) // once seen, always seen: the cache does not go back

	e.Wrote(thisPool, "u", "20")
	clk.SetTime(clk.Now().Add(ttl + 1))
	stale("u", "19", false)

	e.ExpectDeletion(thisPool, "u")
	stale("u", "21", true)
	e.DeletionSeen(thisPool, "u")
	stale("u", "21", false)
}

// TestExpectationsAreBounded holds I10 for this package: what has been seen takes no memory.
func TestExpectationsAreBounded(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Unix(0, 0))
	e := New(clk)
	for range 100 {
		e.ExpectCreation(thisPool, "a")
		e.CreationSeen(thisPool, "a")
		e.Wrote(thisPool, "u", "5")
		e.Stale(thisPool, "u", "5")
		e.Wrote(thisPool, "u", "7")
		e.ExpectDeletion(thisPool, "u")
		e.PodGone(thisPool, "a", "u")
	}
	if len(e.pools) != 0 {
		t.Errorf("left behind: %v", e.pools)
	}

	// The write that removes a Pod's finalizer may be recorded after the Pod's last event.
	e.PodGone(thisPool, "a", "u")
	e.Wrote(thisPool, "u", "9")
	clk.SetTime(clk.Now().Add(ttl + 1))
	if !e.Settled(thisPool) || len(e.pools) != 0 {
		t.Errorf("left behind of a Pod that is gone: %v", e.pools)
	}
}
