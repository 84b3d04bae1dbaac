// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/wait"
)

// divided has the hub divide maxReplicas. What it returns tells the group its room and floor, and returns what the group holds.
func (w *world) divided() func(room int32, floor *int32) *federationv1.Holding {
	w.rooms.Switch(true)
	w.rooms.Begin(1)
	call := uint64(0)
	return func(room int32, floor *int32) *federationv1.Holding {
		w.t.Helper()
		call++
		got, err := w.rooms.Allot(w.t.Context(), &federationv1.AllotCall{Epoch: 1, Number: call, Incarnation: 1, Rooms: []*federationv1.Room{
			{Namespace: w.Namespace, Env: "e", Group: "default", Room: room, Floor: floor},
		}})
		w.Must(err)
		for _, h := range got.GetHoldings() {
			if h.GetNamespace() == w.Namespace {
				return h
			}
		}
		return nil
	}
}

// I9: where the hub divides maxReplicas, a group starts empty, whatever its floors are, and grows as far as its room. A room that shrinks
// ends nothing, and what is held is told until it is gone.
func TestI9GrowthStaysInTheRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	allot := w.divided()
	w.env(quick, `{name: a, config: {minReplicas: 2}}`)
	w.Eventually("what is held, and needed for its floor", func() error {
		h := allot(0, nil)
		return wait.If(h.GetMax() == 8 && h.GetHeld() == 0 && h.GetDemand() == 2, h)
	})
	w.stays("no growth without a room", 2*time.Second, func() error { return wait.If(len(w.Pods("a")) == 0, len(w.Pods("a"))) })
	allot(3, nil)
	w.await("a", 2)
	w.idle("a", 2)
	w.burst("a", 3)
	go func() { _, _ = w.claim("a", "fourth") }()
	w.Eventually("the need for a fourth", func() error {
		h := allot(3, nil)
		return wait.If(h.GetHeld() == 3 && h.GetDemand() == 4, h)
	})
	w.stays("the room", 2*time.Second, func() error {
		got := w.replicas("a")
		return wait.If(got == 3 && len(w.Pods("a")) == 3, fmt.Sprint(got, len(w.Pods("a"))))
	})
	if h := allot(1, nil); h.GetHeld() != 3 {
		t.Errorf("after the room shrank: %v", h)
	}
	w.stays("what runs", 2*time.Second, func() error { return wait.If(len(w.Pods("a")) == 3, len(w.Pods("a"))) })
	w.rooms.Switch(false)
	w.await("a", 6) // Aggressive, and only maxReplicas limits it
}

// A group keeps all of its minReplicas until the hub tells this cluster's part, then that part, also while the hub is away. What it would
// have to hold is told without the part, which the hub knows.
func TestFloorsAreTheHubs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	allot := w.divided()
	w.env(strings.Replace(quick, "maxReplicas", "minReplicas: 3, maxReplicas", 1), `{name: a, config: {priority: 1}}`)
	allot(6, nil)
	w.await("a", 3)
	w.Eventually("minReplicas, and the need for it", func() error {
		h := allot(6, nil)
		return wait.If(h.GetMin() == 3 && h.GetHeld() == 3 && h.GetDemand() == 3, h)
	})
	allot(6, ptr.To[int32](1))
	w.await("a", 1)
	w.Eventually("no need for what the hub knows", func() error {
		h := allot(6, ptr.To[int32](1))
		return wait.If(h.GetMin() == 3 && h.GetHeld() == 1 && h.GetDemand() == 0, h)
	})
	allot(6, ptr.To[int32](2))
	w.await("a", 2)
	allot(6, nil) // a hub of an earlier version
	w.await("a", 3)
}
