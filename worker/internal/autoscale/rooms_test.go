// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"fmt"
	"testing"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/wait"
)

// I9: where the hub divides maxReplicas, a group starts empty, whatever its floors are, and grows as far as its room. A room that shrinks
// ends nothing, and what is held is told until it is gone.
func TestI9GrowthStaysInTheRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rooms.Switch(true)
	w.rooms.Begin(1)
	call := uint64(0)
	allot := func(room int32) *federationv1.Holding {
		t.Helper()
		call++
		got, err := w.rooms.Allot(t.Context(), &federationv1.AllotCall{Epoch: 1, Number: call, Incarnation: 1, Rooms: []*federationv1.Room{
			{Namespace: w.Namespace, Env: "e", Group: "default", Room: room},
		}})
		w.Must(err)
		for _, h := range got.GetHoldings() {
			if h.GetNamespace() == w.Namespace {
				return h
			}
		}
		return nil
	}
	w.env(quick, `{name: a, config: {minReplicas: 2}}`)
	w.Eventually("what is held, and needed for its floor", func() error {
		h := allot(0)
		return wait.If(h.GetMax() == 8 && h.GetHeld() == 0 && h.GetDemand() == 2, h)
	})
	w.stays("no growth without a room", 2*time.Second, func() error { return wait.If(len(w.Pods("a")) == 0, len(w.Pods("a"))) })
	allot(3)
	w.await("a", 2)
	w.idle("a", 2)
	w.burst("a", 3)
	go func() { _, _ = w.claim("a", "fourth") }()
	w.Eventually("the need for a fourth", func() error {
		h := allot(3)
		return wait.If(h.GetHeld() == 3 && h.GetDemand() == 4, h)
	})
	w.stays("the room", 2*time.Second, func() error {
		got := w.replicas("a")
		return wait.If(got == 3 && len(w.Pods("a")) == 3, fmt.Sprint(got, len(w.Pods("a"))))
	})
	if h := allot(1); h.GetHeld() != 3 {
		t.Errorf("after the room shrank: %v", h)
	}
	w.stays("what runs", 2*time.Second, func() error { return wait.If(len(w.Pods("a")) == 3, len(w.Pods("a"))) })
	w.rooms.Switch(false)
	w.await("a", 6) // Aggressive, and only maxReplicas limits it
}
