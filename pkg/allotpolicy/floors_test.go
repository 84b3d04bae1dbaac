// SPDX-License-Identifier: Apache-2.0

package allotpolicy_test

import (
	"maps"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/allotpolicy"
	"navix.sh/atoll/pkg/scalepolicy"
)

// Floors are equal parts of minReplicas, within the rooms. The others keep what a lost cluster kept, until it holds it again.
func TestFloors(t *testing.T) {
	type floors = map[string]int32
	type seen = map[string]allotpolicy.Holding
	type shares = map[string]allotpolicy.Share
	holds := func(least, held int32) allotpolicy.Holding {
		return allotpolicy.Holding{Present: true, Max: 12, Min: least, Held: held}
	}
	three := shares{"a": {Room: 4, Most: 4}, "b": {Room: 4, Most: 4}, "c": {Room: 4, Most: 4}}
	aLost := shares{"a": {Room: 4, Most: 4, Floor: 2, Replaced: true}, "b": {Room: 4, Most: 4, Floor: 3}, "c": {Room: 4, Most: 4, Floor: 3}}
	for name, tc := range map[string]struct {
		shares   shares
		saw      seen
		lost     string
		want     floors
		replaced string
	}{
		"equal parts, the odd ones in order": {
			three, seen{"a": holds(5, 0), "b": holds(5, 0), "c": holds(5, 0)}, "", floors{"a": 2, "b": 2, "c": 1}, "",
		},
		"within the rooms, while a larger one cannot be given": {
			shares{"a": {Room: 1, Most: 4}, "b": {Room: 3, Most: 3}, "c": {Room: 8, Most: 8}},
			seen{"a": holds(9, 4), "b": holds(9, 0), "c": holds(9, 0)}, "", floors{"a": 1, "b": 3, "c": 4}, "",
		},
		"rooms that are too small together": {
			shares{"a": {Room: 1, Most: 1}, "b": {Room: 2, Most: 2}, "x": {Room: 9, Most: 9}},
			seen{"a": holds(9, 0), "b": holds(9, 0)}, "x", floors{"a": 1, "b": 2, "x": 6}, "x",
		},
		"room follows": {
			shares{"a": {Room: 1, Most: 1}, "b": {Room: 11, Most: 11}},
			seen{"a": holds(6, 0), "b": holds(6, 0)}, "", floors{"a": 1, "b": 5}, "",
		},
		"a lost cluster's part is the others'": {three, seen{"b": holds(6, 2), "c": holds(6, 2)}, "a", floors{"a": 2, "b": 3, "c": 3}, "a"},
		"within their rooms alone": {
			shares{"a": {Room: 9, Most: 9}, "b": {Room: 2, Most: 2}, "c": {Room: 1, Most: 1}},
			seen{"b": holds(6, 2), "c": holds(6, 1)}, "a", floors{"a": 3, "b": 2, "c": 1}, "a",
		},
		"one that does not respond, and is not lost yet, keeps its own": {
			three, seen{"b": holds(6, 2), "c": holds(6, 2)}, "", floors{"a": 2, "b": 2, "c": 2}, "",
		},
		"one that responds and gets no claims": {
			three, seen{"a": holds(6, 2), "b": holds(6, 2), "c": holds(6, 2)}, "a", floors{"a": 2, "b": 3, "c": 3}, "a",
		},
		"one that is back without its Pods": {
			aLost, seen{"a": holds(6, 1), "b": holds(6, 3), "c": holds(6, 3)}, "", floors{"a": 2, "b": 3, "c": 3}, "a",
		},
		"one that is back and holds its part": {
			aLost, seen{"a": holds(6, 2), "b": holds(6, 3), "c": holds(6, 3)}, "", floors{"a": 2, "b": 2, "c": 2}, "",
		},
		"one that does not have the group any more": {
			aLost, seen{"a": {}, "b": holds(6, 3), "c": holds(6, 3)}, "", floors{"a": 0, "b": 3, "c": 3}, "",
		},
		"the largest minReplicas, and no cluster more than its own": {
			three, seen{"a": holds(1, 0), "b": holds(7, 0), "c": holds(7, 0)}, "", floors{"a": 1, "b": 3, "c": 3}, "",
		},
		"never more than maxReplicas": {
			three, seen{"a": holds(99, 0), "b": holds(99, 0), "c": holds(99, 0)}, "", floors{"a": 4, "b": 4, "c": 4}, "",
		},
		"no minReplicas":                 {aLost, seen{"b": holds(0, 3), "c": holds(0, 3)}, "a", floors{"a": 0, "b": 0, "c": 0}, ""},
		"no cluster responds: as it was": {aLost, nil, "a", floors{"a": 2, "b": 3, "c": 3}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			before := allotpolicy.Record{Max: 12, Min: 6, Shares: maps.Clone(tc.shares)}
			got := before.Divide(tc.saw, allotpolicy.Others{}, func(cluster string) bool { return cluster == tc.lost })
			for cluster, s := range got.Shares {
				if s.Floor != tc.want[cluster] || s.Replaced != (cluster == tc.replaced) || s.Floor > s.Room {
					t.Errorf("%s keeps %d of room %d, replaced %v; want %d, %v", cluster, s.Floor, s.Room, s.Replaced, tc.want[cluster],
						cluster == tc.replaced)
				}
			}
			if !maps.Equal(before.Shares, tc.shares) {
				t.Errorf("the record it is called on has changed to %v", before.Shares)
			}
		})
	}
}

// The equal part of minReplicas counts as need: a cluster gives room back for that of another.
func TestFloorsAreNeed(t *testing.T) {
	holds := allotpolicy.Holding{Present: true, Max: 6, Min: 4}
	before := allotpolicy.Record{Max: 6, Min: 4, Shares: map[string]allotpolicy.Share{"a": {Room: 6, Most: 6}, "b": {}}}
	got := before.Divide(map[string]allotpolicy.Holding{"a": holds, "b": holds}, allotpolicy.Others{}, nil)
	if room := got.Shares["a"].Room; room != 3 {
		t.Errorf("a's room is %d while b has none for its part of minReplicas, want 3: %v", room, got)
	}
}

// A worker keeps what it was last told: a call that names no floor ends it, and a new incarnation has none.
func TestHolderKeepsItsFloor(t *testing.T) {
	h := allotpolicy.NewHolder()
	h.Switch(true)
	h.Begin(1)
	if h.Floor(key) != nil {
		t.Errorf("a floor of %d before the hub said one", *h.Floor(key))
	}
	type floors = map[allotpolicy.Key]int32
	for i, step := range []struct {
		told    floors
		changed int
	}{{floors{key: 0}, 1}, {floors{key: 3}, 1}, {floors{key: 3}, 0}, {nil, 1}, {floors{key: 3}, 1}} {
		_, changed, err := h.Take(allotpolicy.Call{Epoch: 1, Number: uint64(i + 1), Incarnation: 1, Floors: step.told})
		must.Succeed(t, err)
		got := h.Floor(key)
		if want, told := step.told[key]; (got != nil) != told || told && *got != want || len(changed) != step.changed {
			t.Errorf("step %d, told %v: a floor of %d, changed %v", i, step.told, ptr.Deref(got, -1), changed)
		}
	}
	h.Begin(2)
	if h.Floor(key) != nil {
		t.Error("a new incarnation has a floor")
	}
}

// A new incarnation has no rooms and no parts. A group below its minReplicas stays. One above shrinks to minReplicas, not to its earlier
// part.
func TestANewIncarnationKeepsItsMinReplicas(t *testing.T) {
	h := allotpolicy.NewHolder()
	h.Switch(true)
	h.Begin(1)
	_, _, err := h.Take(allotpolicy.Call{
		Epoch: 1, Number: 1, Incarnation: 1, Rooms: map[allotpolicy.Key]int32{key: 6}, Floors: map[allotpolicy.Key]int32{key: 1},
	})
	must.Succeed(t, err)
	for _, step := range []struct {
		incarnation    uint64
		replicas, want int32
	}{{1, 5, 1}, {1, 0, 1}, {2, 5, 3}, {2, 0, 0}} {
		h.Begin(step.incarnation)
		m := scalepolicy.Member{Name: "pool", Replicas: step.replicas}
		for range step.replicas { // each was marked long ago
			m.IdlePods = append(m.IdlePods, scalepolicy.IdlePod{Ready: true, IdleFor: time.Hour, Marked: true, MarkedFor: time.Hour})
		}
		m.Pods.Idle, m.Pods.ReadyIdle = step.replicas, step.replicas
		got := scalepolicy.Decide(scalepolicy.Group{
			Policy:  v1alpha1.EnvAutoscalingGroup{Enabled: true, MinReplicas: new(int32(3)), MaxReplicas: new(int32(6))},
			Members: []scalepolicy.Member{m}, Room: h.Room(key), Floor: h.Floor(key), Now: time.Unix(0, 0),
		}).Members[0].To
		if got != step.want {
			t.Errorf("incarnation %d: %d replicas become %d, want %d", step.incarnation, step.replicas, got, step.want)
		}
	}
}
