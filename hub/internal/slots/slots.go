// SPDX-License-Identifier: Apache-2.0

// Package slots lets few clusters at a time do what takes the hub's memory and processors, as after a restart, when all of them want it.
//
// A slot ends by itself, so that a cluster which is slow, or does nothing, keeps the others waiting for that long at most (I7). Those that
// wait are served in order (I14).
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
	Lasts  time.Duration // how long a cluster has its slot at most
}

// Slots are those of one purpose.
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

// Take waits for a slot and returns what frees it, which may be called more than once. It waits for as long as patience, 0: for as long as
// it takes, and then returns without a slot. So it does when the stream has ended or was replaced, which also end a slot.
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
