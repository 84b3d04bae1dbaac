// SPDX-License-Identifier: Apache-2.0

// Package slots limits the number of clusters that do memory- and CPU-intensive work at the hub at a time, for example after a restart,
// when all clusters want it.
//
// A slot ends by itself, so that a cluster that is slow or does nothing delays the others by at most that time (I7). Waiting clusters are
// served in order (I14).
package slots

import (
	"context"
	"runtime"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Options are the limits of slots.
type Options struct {
	Clock  clock.Clock
	PerCPU int           // slots for each processor
	Lasts  time.Duration // the longest time that a cluster keeps its slot
}

// Slots holds the slots for one purpose.
type Slots struct {
	opts  Options
	taken chan struct{} // has a token for each slot that is taken
}

// New returns slots that are all free.
func New(opts Options) Slots {
	return Slots{opts: opts, taken: make(chan struct{}, opts.PerCPU*runtime.GOMAXPROCS(0))}
}

// Size returns how many slots there are.
func (s Slots) Size() int { return cap(s.taken) }

// Taken returns how many slots are taken.
func (s Slots) Taken() int { return len(s.taken) }

// Take waits for a slot and returns a function that frees it, which may be called more than once. It waits for at most patience, or without
// a limit if patience is 0, and then returns without a slot. It also returns without a slot if the stream ends or is replaced, which also
// frees a slot.
func (s Slots) Take(ctx context.Context, replaced <-chan struct{}, patience time.Duration) (free func()) {
	if !s.wait(ctx, replaced, patience) {
		return func() {}
	}
	freed := make(chan struct{})
	go func() {
		timer := s.opts.Clock.NewTimer(s.opts.Lasts)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-replaced:
		case <-ctx.Done():
		case <-freed:
		}
		<-s.taken
	}()
	return sync.OnceFunc(func() { close(freed) })
}

func (s Slots) wait(ctx context.Context, replaced <-chan struct{}, patience time.Duration) bool {
	select {
	case s.taken <- struct{}{}:
		return true
	default:
	}
	var impatient <-chan time.Time
	if patience > 0 {
		timer := s.opts.Clock.NewTimer(patience)
		defer timer.Stop()
		impatient = timer.C()
	}
	select {
	case s.taken <- struct{}{}:
		return true
	case <-impatient:
	case <-replaced:
	case <-ctx.Done():
	}
	return false
}
