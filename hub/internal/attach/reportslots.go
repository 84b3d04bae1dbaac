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
	// reportPatience is how long two kinds of clusters wait for a slot: those that the hub knows already, whose calls fail meanwhile, and
	// those whose worker treats a hub as dead that sends nothing before the Welcome.
	reportPatience = time.Second
	// signEvery is the interval at which other waiting workers get a sign that the hub is alive. Workers end a stream after 15 s without a
	// frame.
	signEvery = 4 * time.Second
)

// newReportSlots lets two clusters for each processor send their first complete report at a time, so that claims find the first clusters
// early and few reports are in memory at once.
func newReportSlots(on clock.Clock) slots.Slots {
	return slots.New(slots.Options{Clock: on, PerCPU: 2, Lasts: 250 * time.Millisecond})
}

// awaitSlot waits for a slot and returns the function that frees it.
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

// giveSigns sends HeartbeatAcks, which a worker accepts before its Welcome, until ctx ends.
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
