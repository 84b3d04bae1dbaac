// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// waited is how long taking a slot took.
func waited(ctx context.Context, r reportSlots) (free func(), took time.Duration) {
	began := time.Now()
	free = r.take(ctx)
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
			r.take(t.Context())
		}
		if _, took := waited(t.Context(), r); took != slotLasts {
			t.Errorf("beside as many silent clusters as there are slots a cluster waited %s, want %s", took, slotLasts)
		}
		for range 100 * cap(r.taken) {
			go r.take(t.Context())
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
