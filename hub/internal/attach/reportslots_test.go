// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// waited is how long taking a slot took.
func waited(ctx context.Context, r reportSlots) (free func(), took time.Duration) {
	began := time.Now()
	free = r.take(ctx, nil)
	return free, time.Since(began)
}

func TestAFreedReportSlotIsTakenByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReportSlots(clock.RealClock{})
		var frees []func()
		for range cap(r.taken) {
			free, took := waited(t.Context(), r)
			if took > 0 {
				t.Errorf("one of the first %d clusters waited %s", cap(r.taken), took)
			}
			frees = append(frees, free)
		}
		const later = slotLasts / 2
		go func() {
			time.Sleep(later)
			frees[0]()
			frees[0]() // a stream that ends after its report
		}()
		next, took := waited(t.Context(), r)
		if took != later {
			t.Errorf("the next cluster waited %s, want %s: until a slot is freed", took, later)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if free, took := waited(ctx, r); took != time.Millisecond {
			t.Errorf("a stream that ended waited %s, want 1 ms; one slot was freed twice", took)
		} else {
			free()
		}
		for _, free := range append(frees, next) {
			free()
		}
		synctest.Wait()
		if len(r.taken) != 0 {
			t.Errorf("%d slots are taken at the end, want 0", len(r.taken))
		}
	})
}

// I7: clusters that attach and send no report delay no other one for longer than slotPatience, however many they are.
func TestI7ClustersThatSendNoReportKeepNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReportSlots(clock.RealClock{})
		for range cap(r.taken) {
			r.take(t.Context(), nil)
		}
		if _, took := waited(t.Context(), r); took != slotLasts {
			t.Errorf("beside as many silent clusters as there are slots a cluster waited %s, want %s", took, slotLasts)
		}
		replaced := make(chan struct{})
		for range cap(r.taken) {
			r.take(t.Context(), replaced)
		}
		close(replaced)
		synctest.Wait()
		if _, took := waited(t.Context(), r); took != 0 {
			t.Errorf("beside streams that were replaced a cluster waited %s", took)
		}
		for range 100 * cap(r.taken) {
			go r.take(t.Context(), nil)
		}
		synctest.Wait()
		if _, took := waited(t.Context(), r); took > slotPatience {
			t.Errorf("beside many silent clusters a cluster waited %s, want at most %s", took, slotPatience)
		}
		time.Sleep(time.Minute) // of the fake clock
		if len(r.taken) != 0 {
			t.Errorf("%d slots are taken at the end, want 0", len(r.taken))
		}
	})
}

// Streams take a slot before their Welcome, and free it with their first complete report or their end.
func TestStreamsHaveReportSlots(t *testing.T) {
	h := newHub(t, handler{})
	slots := newReportSlots(testclock.NewFakeClock(time.Unix(1e9, 0))) // none ends by itself
	h.server.reports = slots
	var silent []*worker
	for i := range cap(slots.taken) {
		silent = append(silent, h.begin(fmt.Sprint("silent-", i)))
	}
	if len(slots.taken) != cap(slots.taken) {
		t.Fatalf("%d slots are taken by clusters that have not reported, want %d", len(slots.taken), cap(slots.taken))
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
