// SPDX-License-Identifier: Apache-2.0

package allotpolicy_test

import (
	"math"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/allotpolicy"
)

func holding(limit, held, demand int32) allotpolicy.Holding {
	return allotpolicy.Holding{Present: true, Max: limit, Held: held, Demand: demand}
}

func record(shares map[string]allotpolicy.Share) allotpolicy.Record {
	return allotpolicy.Record{Max: 6, Shares: shares}
}

func TestDivide(t *testing.T) {
	type shares = map[string]allotpolicy.Share
	type seen = map[string]allotpolicy.Holding
	fresh, none := record(shares{"a": {}, "b": {}}), allotpolicy.Others{}
	idle := seen{"a": holding(6, 0, 0), "b": holding(6, 0, 0)}
	halves := shares{"a": {Room: 3, Most: 3}, "b": {Room: 3, Most: 3}}
	mostly := shares{"a": {Room: 5, Most: 5}, "b": {Room: 1, Most: 1}}
	partly := shares{"a": {Room: 2, Most: 2}, "b": {Room: 4, Most: 4}}
	for name, tc := range map[string]struct {
		record allotpolicy.Record
		seen   seen
		others allotpolicy.Others
		want   shares
	}{
		"no need: equal parts": {fresh, idle, none, halves},
		"a part waits for a cluster that has not answered": {
			fresh, idle, allotpolicy.Others{Missing: 1}, shares{"a": {Room: 2, Most: 2}, "b": {Room: 2, Most: 2}},
		},
		"need first, then equal parts of the rest": {fresh, seen{"a": holding(6, 0, 4), "b": holding(6, 0, 0)}, none, mostly},
		"too much need: equal parts":               {fresh, seen{"a": holding(6, 0, 6), "b": holding(6, 0, 6)}, none, halves},
		"room is asked back, and given out once it is free": {
			record(halves), seen{"a": holding(6, 3, 6), "b": holding(6, 3, 0)}, none, shares{"a": {Room: 3, Most: 3}, "b": {Room: 0, Most: 3}},
		},
		"no need of more: nothing changes":         {record(mostly), seen{"a": holding(6, 3, 3), "b": holding(6, 1, 1)}, none, mostly},
		"a cluster that is away keeps what it has": {record(partly), seen{"a": holding(6, 2, 6)}, none, partly},
		"the smallest maxReplicas holds": {
			record(halves), seen{"a": holding(6, 3, 3), "b": holding(2, 3, 3)}, none, shares{"a": {Room: 1, Most: 3}, "b": {Room: 1, Most: 3}},
		},
		"what was held at joining stays, and no cluster grows": {
			record(shares{"a": {Room: 4, Most: 4}, "b": {Most: 5}}), seen{"a": holding(6, 1, 6), "b": holding(6, 5, 5)}, none,
			shares{"a": {Room: 3, Most: 4}, "b": {Most: 5}},
		},
		"what workers hold that know no rooms": {
			record(shares{"a": {}}), seen{"a": holding(6, 0, 6)}, allotpolicy.Others{Unbound: 4}, shares{"a": {Room: 2, Most: 2}},
		},
		"a group that is gone from a cluster": {
			record(halves), seen{"a": holding(6, 0, 0), "b": {}}, none, shares{"a": {Room: 3, Most: 3}, "b": {Most: 3}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.record.Divide(tc.seen, tc.others, nil); !got.Equal(allotpolicy.Record{Max: got.Max, Shares: tc.want}) {
				t.Errorf("the shares are %v, want %v", got.Shares, tc.want)
			}
		})
	}
}

// What a forgotten cluster may hold is missing until it is reclaimed, and a cluster that is back has it again.
func TestI9ForgottenClusters(t *testing.T) {
	r := record(map[string]allotpolicy.Share{"a": {UID: "1", Room: 2, Most: 2}, "b": {UID: "2", Room: 3, Most: 4}})
	lost := r.Settle(map[string]string{"a": "1"})
	if rooms, most := lost.Sums(); rooms != 2 || most != 6 || len(lost.Lost) != 1 {
		t.Fatalf("after a cluster was forgotten: %+v", lost)
	}
	if got := lost.Settle(map[string]string{"a": "1", "b": "2"}); !got.Equal(record(map[string]allotpolicy.Share{
		"a": {UID: "1", Room: 2, Most: 2}, "b": {UID: "2", Most: 4},
	})) {
		t.Errorf("after it came back: %+v", got)
	}
	if got := lost.Settle(map[string]string{"a": "1", "b": "other"}); !got.Equal(lost) {
		t.Errorf("another cluster under its name changes it to %+v", got)
	}
	if _, most := lost.Reclaim("a").Reclaim("b").Sums(); most != 2 {
		t.Errorf("%d may be held after it was reclaimed, want 2", most)
	}
}

// Pods that end count until they are gone, and so does a write whose outcome is unknown.
func TestHolderCounts(t *testing.T) {
	now := time.Unix(0, 0)
	h := allotpolicy.NewHolder()
	h.Switch(true)
	h.Begin(7)
	holds := func(want int32) {
		t.Helper()
		a, _, err := h.Take(allotpolicy.Call{Epoch: 1, Incarnation: 7, Number: 1, Rooms: map[allotpolicy.Key]int32{key: 4}})
		must.Succeed(t, err)
		if got := a.Holdings[key].Held; got != want {
			t.Errorf("%d are held, want %d", got, want)
		}
	}
	look := func(held, ending int32) {
		h.Observe(key, allotpolicy.Observation{Holding: holding(6, held, 0), Ending: ending}, now)
	}
	look(3, 0)
	holds(3)
	look(2, 1)
	holds(3)
	look(2, 0)
	holds(2)
	look(2, 1) // one was replaced
	holds(2)
	if h.Promise(key, 5) || !h.Promise(key, 4) {
		t.Error("a growth past the room is allowed, or one within it is not")
	}
	holds(4)
	h.Doubt(key, now)
	look(2, 0)
	holds(4)
	now = now.Add(allotpolicy.Unsure)
	look(2, 0)
	holds(2)
}

// A number that wraps around would hide Pods that end.
func TestHolderCountsHugeNumbers(t *testing.T) {
	h := allotpolicy.NewHolder()
	h.Switch(true)
	h.Begin(7)
	h.Observe(key, allotpolicy.Observation{Holding: holding(math.MaxInt32, math.MaxInt32-1, 0), Ending: 2}, time.Unix(0, 0))
	a, _, err := h.Take(allotpolicy.Call{Epoch: 1, Incarnation: 7, Number: 1, Rooms: map[allotpolicy.Key]int32{key: 4}})
	must.Succeed(t, err)
	if got := a.Holdings[key].Held; got != math.MaxInt32 {
		t.Errorf("%d are held, want %d", got, math.MaxInt32)
	}
}

// A worker follows the latest call of its own incarnation, and has no rooms at first.
func TestI9HolderFollowsTheLatestCall(t *testing.T) {
	h := allotpolicy.NewHolder()
	if h.Room(key) != nil {
		t.Error("there is a limit without a hub that divides")
	}
	h.Switch(true)
	h.Begin(2)
	if *h.Room(key) != 0 {
		t.Error("a new incarnation has room")
	}
	take := func(incarnation, epoch, number uint64, room int32) error {
		_, _, err := h.Take(allotpolicy.Call{Incarnation: incarnation, Epoch: epoch, Number: number, Rooms: map[allotpolicy.Key]int32{key: room}})
		return err
	}
	if take(1, 1, 1, 6) == nil {
		t.Error("rooms of an earlier incarnation are taken")
	}
	for i, step := range []struct {
		epoch, number uint64
		room, want    int32
	}{{1, 5, 4, 4}, {1, 4, 6, 4}, {2, 1, 3, 3}, {1, 9, 6, 3}, {2, 2, 5, 5}} {
		must.Succeed(t, take(2, step.epoch, step.number, step.room))
		if got := *h.Room(key); got != step.want {
			t.Errorf("step %d: the room is %d, want %d", i, got, step.want)
		}
	}
	h.Begin(3)
	if *h.Room(key) != 0 {
		t.Error("a new incarnation has room")
	}
}
