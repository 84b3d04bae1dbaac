// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/fleet"
)

const (
	// maxAcks bounds the hub's memory for a worker that sends but does not read. A worker that reads has in flight at most its credit window
	// of reports and a few heartbeats.
	maxAcks = 256
	// maxEnded bounds the records that wait for the store; the worker sends a dropped record again.
	maxEnded = 4
)

// conn is one attached stream.
type conn struct {
	server    *Server
	clusterID string
	origin    callID // id of its dispatches, without their numbers
	session   *fleet.Session
	reported  func()        // frees its report slot
	releases  chan struct{} // has a token when a release is queued
	managed   bool          // the hub may renew its certificate
	requests  chan *federationv1.CertificateRequest
	leaves    chan struct{} // has a token when callers have left
	redirects chan string   // holds the reason of the first Redirect

	redirected atomic.Bool
	renewing   atomic.Bool            // its worker got a new certificate
	offered    atomic.Pointer[string] // the hash of the CAs that were last sent to its worker; nil: none
	handler    Handler
	log        logr.Logger

	table *table
	done  chan struct{} // closed when the stream has ended

	dispatches chan *call // unbuffered: the writer sends a call as soon as it receives it
	acks       chan *federationv1.HubFrame
	foreign    chan *federationv1.HubFrame
	sent       chan struct{} // has a token when a foreign frame was sent
	ended      chan *federationv1.Ended
	indexed    bool // a whole key index has arrived
	marks      marks
}

// markEvery is the interval at which a worker gets a new mark of the ledger, if the ledger has advanced.
const markEvery = 10 * time.Second

// marks is the state of the ledger's marks of one stream. The stream's reader owns it.
type marks struct {
	at   time.Time
	last *federationv1.LedgerMark
}

func (m *marks) next(now time.Time, of Ledger) *federationv1.LedgerMark {
	if now.Sub(m.at) < markEvery {
		return nil
	}
	m.at = now
	mark := of.Mark()
	if mark == nil || mark.GetId() == m.last.GetId() && mark.GetRevision() <= m.last.GetRevision() {
		return nil
	}
	m.last = mark
	return mark
}

func (s *Server) newConn(clusterID string, hello *federationv1.Hello, session *fleet.Session, handler Handler, log logr.Logger) *conn {
	return &conn{
		server:     s,
		clusterID:  clusterID,
		origin:     callID{cluster: clusterID, term: hello.GetTerm(), stream: hello.GetStream()},
		session:    session,
		reported:   func() {},
		releases:   make(chan struct{}, 1),
		managed:    hello.GetTrust() != "",
		requests:   make(chan *federationv1.CertificateRequest, 1),
		leaves:     make(chan struct{}, 1),
		redirects:  make(chan string, 1),
		handler:    handler,
		log:        log,
		table:      newTable(),
		done:       make(chan struct{}),
		dispatches: make(chan *call),
		acks:       make(chan *federationv1.HubFrame, maxAcks),
		foreign:    make(chan *federationv1.HubFrame),
		sent:       make(chan struct{}, 1),
		ended:      make(chan *federationv1.Ended, maxEnded),
	}
}

var (
	errReplaced  = status.Error(codes.Aborted, "a newer stream of this cluster has taken over")
	errNotTaken  = status.Error(codes.ResourceExhausted, "the worker does not read its acknowledgements")
	errEndOfFlow = status.Error(codes.Unavailable, "the worker closed the stream")
)

// serve runs the stream. Its return ends the stream, which unblocks Send and Recv. So serve does not wait for the reader and the writer,
// and afterwards they use nothing but the stream and channels.
func (c *conn) serve(stream stream) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	var own sync.WaitGroup
	own.Go(func() { cancel(c.pump(ctx)) })
	own.Go(func() { c.store(ctx) })
	own.Go(func() { c.settle(ctx) })
	own.Go(func() { c.certify(ctx) })
	go func() { cancel(c.read(ctx, stream)) }()
	go func() { cancel(c.write(ctx, stream)) }()
	select {
	case <-ctx.Done():
	case <-c.session.Replaced():
		cancel(errReplaced)
	}
	c.server.holdAgain(c) // before done is closed
	close(c.done)
	c.recordLost(c.table.close()...)
	own.Wait()
	if queued := c.server.orphans.of(c.clusterID); len(queued) > 0 {
		c.server.lost(&federationv1.RelayLost{SandboxIds: queued})
	}
	return context.Cause(ctx)
}

func (c *conn) read(ctx context.Context, stream stream) error {
	for {
		frame, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return errEndOfFlow
		case err != nil:
			return err
		case ctx.Err() != nil: // frames that a replaced stream still delivers are dropped
			return context.Cause(ctx)
		}
		if err := c.handle(frame); err != nil {
			return err
		}
	}
}

func (c *conn) handle(frame *federationv1.WorkerFrame) error {
	switch body := frame.GetBody().(type) {
	case *federationv1.WorkerFrame_Report:
		return c.report(body.Report)
	case *federationv1.WorkerFrame_Heartbeat:
		ack := c.session.Heartbeat(body.Heartbeat)
		ack.Ledger = c.marks.next(c.server.opts.Clock.Now(), c.server.opts.Ledger)
		return c.ack(&federationv1.HubFrame{Body: &federationv1.HubFrame_HeartbeatAck{HeartbeatAck: ack}})
	case *federationv1.WorkerFrame_Receipt:
		c.session.Receipt()
		c.table.received(body.Receipt.GetId())
	case *federationv1.WorkerFrame_Answer:
		c.handleAnswer(bounded(body.Answer))
	case *federationv1.WorkerFrame_Ended:
		kept, dropped := storable(body.Ended.GetSandboxes())
		if dropped > 0 {
			c.server.metrics.records.Add(float64(dropped))
			c.log.Info("dropped records of ended sandboxes that are too large", "count", dropped)
		}
		select {
		case c.ended <- &federationv1.Ended{Batch: body.Ended.GetBatch(), Sandboxes: kept}:
		default: // not acknowledged, so the worker sends it again
		}
	case *federationv1.WorkerFrame_TrustAck:
		if sent := c.offered.Load(); sent != nil && *sent == body.TrustAck.GetHash() { // otherwise each ack would cause a write of the record
			c.session.Trusted(*sent)
		}
	case *federationv1.WorkerFrame_CertificateRequest:
		select {
		case c.requests <- body.CertificateRequest:
		default: // one is being processed; the worker requests again
		}
	case *federationv1.WorkerFrame_Hello, *federationv1.WorkerFrame_Begin:
		return status.Error(codes.FailedPrecondition, "the stream has begun already")
	default: // from a newer worker
	}
	return nil
}

func (c *conn) report(r *federationv1.Report) error {
	ack := c.session.Report(r)
	if c.session.Synced() {
		c.reported()
	}
	if keys, whole := c.session.Keys(); whole {
		if c.session.Outdated() { // a loss was noticed during the report: the index lacks keys
			c.session.Close()
		} else {
			c.handler.OnKeys(c.clusterID, keys)
		}
		if !c.indexed && c.session.EtcdRestored() {
			c.handler.OnRestored(c.clusterID, keys)
		}
		c.indexed = true
	}
	if ack == nil {
		return nil
	}
	return c.ack(&federationv1.HubFrame{Body: &federationv1.HubFrame_ReportAck{ReportAck: ack}})
}

func (c *conn) ack(frame *federationv1.HubFrame) error {
	select {
	case c.acks <- frame:
		return nil
	default:
		return errNotTaken
	}
}

func (c *conn) handleAnswer(a *federationv1.Answer) {
	if id := a.GetSandbox().GetId(); c.table.deliver(a) && c.minted(id) {
		c.server.orphans.queueRelease(c.clusterID, id)
		wake(c.releases)
	}
}

// pump passes foreign segments to the writer, one frame at a time. Until a frame is sent, the fleet merges new changes and makes no other
// frame.
func (c *conn) pump(ctx context.Context) error {
	for number := uint64(1); ; number++ {
		f, err := c.session.NextForeign(ctx)
		if err != nil {
			return err
		}
		f.Number = number
		select {
		case c.foreign <- &federationv1.HubFrame{Body: &federationv1.HubFrame_Foreign{Foreign: f}}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-c.sent:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *conn) store(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case ended := <-c.ended:
			if err := c.handler.OnEnded(ctx, c.clusterID, ended); err != nil {
				c.log.Error(err, "could not store ended sandboxes, the worker will send them again", "count", len(ended.GetSandboxes()))
				continue
			}
			c.send(ctx, &federationv1.HubFrame{Body: &federationv1.HubFrame_EndedAck{EndedAck: &federationv1.EndedAck{
				Batch: ended.GetBatch(), Ledger: c.server.opts.Ledger.Mark(),
			}}})
		}
	}
}

// write sends acks and dispatches before foreign segments.
func (c *conn) write(ctx context.Context, stream stream) error {
	for {
		var err error
		select {
		case frame := <-c.acks:
			err = stream.Send(frame)
		case call := <-c.dispatches:
			err = stream.Send(call.frame())
		default:
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case frame := <-c.acks:
				err = stream.Send(frame)
			case call := <-c.dispatches:
				err = stream.Send(call.frame())
			case <-c.leaves:
				err = c.sendLeaves(stream)
			case reason := <-c.redirects:
				err = stream.Send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Redirect{Redirect: &federationv1.Redirect{Reason: reason}}})
			case frame := <-c.foreign:
				err = stream.Send(frame)
				c.sent <- struct{}{} // never blocks: pump takes the token before it passes the next frame
			}
		}
		if err != nil {
			return err
		}
	}
}

// sendLeaves tells the worker of claims whose callers have left. The same goroutine sent the claims, so no such message overtakes its
// claim.
func (c *conn) sendLeaves(stream stream) error {
	left := c.table.takeLeaving()
	if len(left) == 0 {
		return nil
	}
	return stream.Send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Leave{Leave: &federationv1.Leave{Dispatches: left}}})
}

// wake puts a token into an empty channel.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
