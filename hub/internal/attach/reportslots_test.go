// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/wait"
)

// Streams take a slot before their Welcome, and free it with their first complete report or their end.
func TestStreamsHaveReportSlots(t *testing.T) {
	h := newHub(t, handler{})
	slots := newReportSlots(testclock.NewFakeClock(time.Unix(1e9, 0))) // none ends by itself
	h.server.reports = slots
	var silent []*worker
	for i := range slots.Size() {
		silent = append(silent, h.begin(fmt.Sprint("silent-", i)))
	}
	if slots.Taken() != slots.Size() {
		t.Fatalf("%d slots are taken by clusters that have not reported, want %d", slots.Taken(), slots.Size())
	}
	welcomed := func(id string, free func()) {
		w := h.dial(id)
		w.sendHello(&federationv1.Hello{Incarnation: 1})
		free()
		w.read()
		w.next("welcome", func(f *federationv1.HubFrame) bool { return f.GetWelcome() != nil })
	}
	welcomed("after-a-report", func() {
		silent[0].read()
		silent[0].report(&federationv1.Report{Sequence: 1, Last: true, Complete: true}, "env")
	})
	welcomed("after-an-end", func() { silent[1].end() })
}

// A worker that has no slot to report yet sees that the hub lives, and gets its Welcome when it has one. One that the hub knows, or that
// takes no sign before its Welcome, is not kept waiting.
func TestWorkersThatWaitSeeThatTheHubLives(t *testing.T) {
	h := newHub(t, handler{})
	still, clk := testclock.NewFakeClock(time.Unix(1e9, 0)), testclock.NewFakeClock(time.Unix(1e9, 0))
	h.server.opts.Clock, h.server.reports = clk, newReportSlots(still) // no slot ends by itself
	known := h.begin("known")
	known.read()
	known.report(&federationv1.Report{Sequence: 1, Last: true, Complete: true}, "env")
	var frees []func()
	for range h.server.reports.Size() {
		frees = append(frees, h.server.reports.Take(t.Context(), nil, 0))
	}
	hello := func(id string, stream uint64, waits bool) *worker {
		w := h.dial(id)
		w.sendHello(&federationv1.Hello{Incarnation: 1, Stream: stream, Waits: waits})
		w.read()
		return w
	}
	waiting := hello("waiting", 1, true)
	isSign := func(f *federationv1.HubFrame) bool {
		if f.GetWelcome() != nil {
			t.Error("it is welcomed before it has a slot")
		}
		return f.GetHeartbeatAck() != nil
	}
	for range 3 {
		h.eventually(func() error { // again; because another timer than the signs' may have waited for the first step
			clk.Step(signEvery)
			select {
			case f := <-waiting.frames:
				return wait.If(isSign(f), "another frame came")
			default:
				return errors.New("no sign came")
			}
		})
	}
	isWelcome := func(f *federationv1.HubFrame) bool { return f.GetWelcome() != nil }
	others := []*worker{hello("known", 2, true), hello("older", 1, false)}
	h.eventually(func() error {
		return wait.If(still.Waiters() >= h.server.reports.Size()+len(others), "they do not wait yet")
	})
	frees[0]()
	waiting.next("the welcome", isWelcome)
	still.Step(reportPatience) // ends all slots as well
	for _, w := range others {
		w.next("the welcome", isWelcome)
	}
}
