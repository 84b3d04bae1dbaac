// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/wallclock"
)

// Errors of a dispatch itself.
var (
	// ErrNotConnected means that the call was not sent and had no effect.
	ErrNotConnected = calls.ErrNotConnected
	// ErrUnclear means that the call was sent and its outcome is unknown.
	ErrUnclear = errors.New("outcome unclear")
)

// maxAbandoned bounds the claims that a stream remembers after their callers left, so that a late sandbox can be released. A worker runs at
// most as many calls at a time.
const maxAbandoned = 32_768

const releaseTimeout = 30 * time.Second

// call is one dispatch in flight.
type call struct {
	dispatch *federationv1.Dispatch
	receipt  chan struct{}             // closed by the receipt or the response
	answer   chan *federationv1.Answer // holds one
}

func (c *call) frame() *federationv1.HubFrame {
	return &federationv1.HubFrame{Body: &federationv1.HubFrame_Dispatch{Dispatch: c.dispatch}}
}

// movesOn reports whether the caller should try another cluster instead of waiting. That is true only for a claim without a key; because
// two clusters may then both serve it, which only the orphan's cluster would notice.
func (c *call) movesOn() bool { return calls.Unkeyed(c.dispatch) }

func (c *conn) dispatch(ctx context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	d.Incarnation = c.session.Incarnation()
	d.Trace = link.TraceContext(ctx)
	if d.Ledger == nil { // set by the replica that made the call
		d.Ledger = c.server.opts.Ledger.Mark()
	}
	// A shorter timeout stays: the caller waits longer than the worker, to learn the outcome.
	if left, ok := wallclock.Left(ctx); ok && (d.Timeout == nil || left < d.Timeout.AsDuration()) {
		d.Timeout = durationpb.New(left)
	}
	if err := link.Check((&call{dispatch: d}).frame()); err != nil {
		return unsendable(err), nil
	}
	call := c.table.add(d)
	overdue := c.server.opts.Clock.NewTimer(receiptTimeout)
	defer overdue.Stop()
	select {
	case c.dispatches <- call:
	case <-overdue.C():
		c.table.forget(call)
		c.session.NoReceipt()
		c.server.metrics.late.Inc()
		return nil, fmt.Errorf("%w: the stream of cluster %s is stalled", ErrNotConnected, c.clusterID)
	case <-ctx.Done():
		c.table.forget(call)
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, ctx.Err())
	case <-c.done:
		c.table.forget(call)
		return nil, fmt.Errorf("%w: the stream of cluster %s ended", ErrNotConnected, c.clusterID)
	}
	return c.await(ctx, call)
}

// await waits for the response to a call that was sent, or is about to be.
func (c *conn) await(ctx context.Context, call *call) (*federationv1.Answer, error) {
	timer := c.server.opts.Clock.NewTimer(receiptTimeout)
	defer timer.Stop()
	receipt, overdue := call.receipt, timer.C()
	var unclear error
	for unclear == nil {
		select {
		case answer := <-call.answer:
			return answer, nil
		case <-receipt:
			receipt, overdue = nil, nil
		case <-overdue:
			overdue = nil
			c.session.NoReceipt()
			c.server.metrics.late.Inc()
			if call.movesOn() {
				unclear = fmt.Errorf("%w: cluster %s did not confirm the call within %s", ErrUnclear, c.clusterID, receiptTimeout)
			}
		case <-ctx.Done():
			unclear = fmt.Errorf("%w: %w", ErrUnclear, ctx.Err())
		case <-c.done:
			unclear = fmt.Errorf("%w: the stream of cluster %s broke", ErrUnclear, c.clusterID)
		}
	}
	answer, lost := c.table.abandon(call)
	if answer != nil {
		return answer, nil
	}
	if call.movesOn() {
		wake(c.leaves)
	}
	if lost {
		c.recordLost(call.dispatch.GetId())
	}
	return nil, unclear
}

// table maps responses to their callers.
type table struct {
	mu        sync.Mutex
	closed    bool
	last      uint64
	waiting   map[uint64]*call
	abandoned map[uint64]struct{}
	leaving   []uint64 // abandoned calls that were not sent to the worker yet
}

func newTable() *table {
	return &table{waiting: map[uint64]*call{}, abandoned: map[uint64]struct{}{}}
}

func (t *table) add(d *federationv1.Dispatch) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	d.Id = t.last
	c := &call{dispatch: d, receipt: make(chan struct{}), answer: make(chan *federationv1.Answer, 1)}
	t.waiting[d.Id] = c
	return c
}

// forget drops a call that was not sent.
func (t *table) forget(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, c.dispatch.GetId())
}

// abandon drops a call that was sent and whose caller leaves. If the response has arrived in the meantime, abandon returns it, and the
// caller must use it. lost is true if the response cannot arrive any more.
func (t *table) abandon(c *call) (answer *federationv1.Answer, lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case answer := <-c.answer:
		return answer, false
	default:
	}
	delete(t.waiting, c.dispatch.GetId())
	if c.movesOn() && len(t.abandoned) < maxAbandoned && !t.closed {
		t.abandoned[c.dispatch.GetId()] = struct{}{}
		t.leaving = append(t.leaving, c.dispatch.GetId())
	}
	return nil, c.movesOn() && t.closed
}

func (t *table) received(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.waiting[id]; c != nil {
		closeOnce(c.receipt)
	}
}

// deliver delivers a response. It returns true if the response is for a claim whose caller has left.
func (t *table) deliver(a *federationv1.Answer) (abandoned bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := a.GetId()
	if c := t.waiting[id]; c != nil {
		delete(t.waiting, id)
		closeOnce(c.receipt)
		c.answer <- a
		return false
	}
	_, abandoned = t.abandoned[id]
	delete(t.abandoned, id)
	return abandoned
}

// takeLeaving removes and returns the calls whose callers have left, without those that got a response since.
func (t *table) takeLeaving() []uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.DeleteFunc(t.leaving, func(id uint64) bool {
		_, under := t.abandoned[id]
		return !under
	})
	t.leaving = nil
	return all
}

func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}

// close returns the abandoned calls whose responses will not arrive any more.
func (t *table) close() (lost []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	lost = slices.Collect(maps.Keys(t.abandoned))
	clear(t.abandoned)
	return lost
}

// closeOnce is called with the table's lock held.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
