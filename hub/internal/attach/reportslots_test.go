// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// Streams take a slot before their Welcome, and free it with their first complete report or their end.
func TestStreamsHaveReportSlots(t *testing.T) {
	h := newHub(t, handler{})
	slots := reportSlots(testclock.NewFakeClock(time.Unix(1e9, 0))) // none ends by itself
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
		w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{
			Hello: &federationv1.Hello{Protocol: 1, Stream: 1, ClusterUid: "uid-" + id, Term: "term-" + id, Incarnation: 1},
		}})
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
