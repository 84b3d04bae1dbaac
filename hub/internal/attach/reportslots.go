// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/slots"
)

const (
	// reportPatience is how long a cluster waits for its slot that the hub knows already, and calls meanwhile in vain, or whose worker takes a
	// hub that says nothing before the Welcome for dead.
	reportPatience = time.Second
	// signEvery is how often others are told that the hub lives. Workers end a stream after 15 s without a frame.
	signEvery = 4 * time.Second
)

// newReportSlots lets two clusters for each processor send their first complete report at a time: claims then find the first clusters
// early, and few reports are in memory at once.
func newReportSlots(on clock.Clock) slots.Slots {
	return slots.New(slots.Options{Clock: on, PerCPU: 2, Lasts: 250 * time.Millisecond})
}

// awaitSlot returns what frees the stream's slot.
func (s *Server) awaitSlot(stream stream, hello *federationv1.Hello, session *fleet.Session) (free func()) {
	if session.Known() || !hello.GetWaits() {
		return s.reports.Take(stream.Context(), session.Replaced(), reportPatience)
	}
	ctx, got := context.WithCancel(stream.Context())
	var signs sync.WaitGroup
	signs.Go(func() { s.giveSigns(ctx, stream) })
	defer signs.Wait() // a stream has one sender at a time
	defer got()
	return s.reports.Take(stream.Context(), session.Replaced(), 0)
}

// giveSigns sends what a worker takes before its Welcome.
func (s *Server) giveSigns(ctx context.Context, stream stream) {
	timer := s.opts.Clock.NewTimer(signEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		sign := &federationv1.HubFrame{Body: &federationv1.HubFrame_HeartbeatAck{HeartbeatAck: &federationv1.HeartbeatAck{}}}
		if stream.Send(sign) != nil {
			return // the stream has ended
		}
		timer.Reset(signEvery)
	}
}
