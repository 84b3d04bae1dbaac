// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"runtime"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// slotsPerCPU clusters for each processor send their first complete report at a time; because reports that are all taken at once are all
	// complete at the end, and one after the other half of them are by half of the time.
	slotsPerCPU = 2
	// slotLasts is how long a cluster has its slot at most, and slotPatience how long one waits for a slot; because a cluster may be slow,
	// or send nothing (I7).
	slotLasts    = 250 * time.Millisecond
	slotPatience = time.Second
)

// reportSlots lets few clusters at a time send their first complete report.
type reportSlots struct {
	clock clock.Clock
	taken chan struct{} // has a token for each slot that is taken
}

func newReportSlots(on clock.Clock) reportSlots {
	return reportSlots{clock: on, taken: make(chan struct{}, slotsPerCPU*runtime.GOMAXPROCS(0))}
}

// take waits for a slot and returns what frees it, which may be called more than once. After slotPatience, or when the stream has ended or
// was replaced, it returns without a slot.
func (r reportSlots) take(ctx context.Context, replaced <-chan struct{}) (free func()) {
	select {
	case r.taken <- struct{}{}:
	default:
		patience := r.clock.NewTimer(slotPatience)
		defer patience.Stop()
		select {
		case r.taken <- struct{}{}:
		case <-patience.C():
			return func() {}
		case <-replaced:
			return func() {}
		case <-ctx.Done():
			return func() {}
		}
	}
	freed := make(chan struct{})
	go func() {
		timer := r.clock.NewTimer(slotLasts)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-replaced:
		case <-freed:
		}
		<-r.taken
	}()
	return sync.OnceFunc(func() { close(freed) })
}
