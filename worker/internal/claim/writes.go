// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
)

const (
	// maxWrites is how many claims are written at a time. More are not faster, and might take longer than a write's timeout. Fewer cost the
	// API server and etcd more processor time each, because they do such writes in batches.
	maxWrites = 256
	// maxSilence is how long the API server may respond to no write before the claims that wait for one are refused.
	maxSilence = 7 * time.Second
)

// writes are the claims being written. Those that wait for one to end go in order.
type writes struct {
	clock clock.Clock
	slots chan struct{}
	ended atomic.Pointer[time.Time] // when the last one ended
}

func newWrites(on clock.Clock) *writes {
	w := &writes{clock: on, slots: make(chan struct{}, maxWrites)}
	w.end()
	return w
}

// begin waits until a claim may be written, and returns why it may not be.
func (w *writes) begin(ctx context.Context, o *op) error {
	select {
	case w.slots <- struct{}{}:
		return nil
	default:
	}
	began := w.clock.Now()
	for {
		wait := min(maxSilence, o.deadline.Sub(w.clock.Now()))
		timer := w.clock.NewTimer(wait)
		select {
		case w.slots <- struct{}{}:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return disposition.Refuse(problem.NoCapacity, "the claim was canceled")
		case <-timer.C():
		}
		now := w.clock.Now()
		switch {
		case !now.Before(o.deadline):
			return disposition.Refuse(problem.Deadline, "%d claims were being written, and none ended in time", maxWrites)
		case now.Sub(*w.ended.Load()) >= maxSilence && now.Sub(began) >= maxSilence:
			return disposition.Refuse(problem.Unavailable, "the API server has responded to none of %d writes for %s", maxWrites, maxSilence)
		}
	}
}

// done ends one that has begun.
func (w *writes) done() {
	w.end()
	<-w.slots
}

func (w *writes) end() {
	now := w.clock.Now()
	w.ended.Store(&now)
}
