// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/segment"
)

const (
	// silence is how long the hub may send nothing before the worker closes the stream.
	silence = 15 * time.Second
	// refreshBeats is the number of heartbeats after which all Envs are checked, in case a mark was missed.
	refreshBeats = 10

	endedResend = 5 * time.Second
	endedBatch  = 256
)

var errSilent = errors.New("the hub has been silent for too long")

// uplink is one stream. All fields except heard, receipts, answers, acks, certificates and unkeyedClaims belong to the goroutine of
// send.
type uplink struct {
	agent  *Agent
	stream link.Stream
	clock  clock.WithTicker
	heard  atomic.Pointer[time.Time]

	receipts     chan *federationv1.WorkerFrame // urgent, and cheap
	answers      chan answeredDispatch          // unbuffered, so that an answer that was not taken was not sent
	acks         chan *federationv1.HubFrame
	sentAll      chan struct{} // closed when nothing more is sent
	redirect     chan error    // holds the first reason to leave
	parting      parting
	certificates certificates

	reporting
	beats       uint64
	ended       endedOutbox
	lastForeign uint64 // number of the last message about other clusters

	unkeyedClaims unkeyedClaims
	unconfirmed   []answered // oldest first
	named         int        // how many of the agent's unacknowledged answers are in this stream's Hello
}

// serve runs one stream.
func (a *Agent) serve(ctx context.Context, hub federationv1.LinkClient) (err error) {
	hello, err := a.hello(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	stream, err := hub.Attach(ctx)
	if err != nil {
		return fmt.Errorf("attaching: %w", err)
	}
	u := &uplink{
		agent: a, stream: stream, clock: a.opts.Clock,
		receipts:     make(chan *federationv1.WorkerFrame, maxCalls),
		answers:      make(chan answeredDispatch),
		acks:         make(chan *federationv1.HubFrame, window),
		sentAll:      make(chan struct{}),
		redirect:     make(chan error, 1),
		certificates: newCertificates(),
		reporting: reporting{
			out: outbox{chunk: a.opts.ReportSize}, pending: map[segment.Key]*segment.Segment{},
		},
	}
	u.hear()
	end := a.serveTunnels(hub)
	defer func() { end(err) }()
	group.Go(func() error { return u.watch(ctx) })
	group.Go(func() error { return u.talk(ctx, hello, group) })
	err = u.parting.wrap(group.Wait())
	a.setConnected(false)
	a.metrics.unacked.Set(0)
	return err
}

// talk exchanges the first messages. Then it reads and sends in parallel.
func (u *uplink) talk(ctx context.Context, hello *federationv1.Hello, group *errgroup.Group) error {
	welcome, err := u.agent.introduce(ctx, u.stream, hello, u.hear)
	if err != nil {
		return err
	}
	u.hear()
	u.agent.source.SetOpen(true)
	defer u.agent.source.SetOpen(false)
	u.named = len(hello.GetUnacknowledged())
	defer u.keepUnacknowledged(hello.GetStream())
	u.out.sequence, u.out.acked = u.agent.sequence, u.agent.sequence
	if u.resume = welcome.deltas; u.resume {
		u.out.reported = *u.agent.reported
	}
	u.complete = !u.resume
	defer u.keepReported()
	group.Go(func() error { return u.read(ctx) })
	group.Go(func() error { return u.keepIdentity(ctx) })
	return u.send(ctx, welcome.interval)
}

func (u *uplink) hear() {
	now := u.clock.Now()
	u.heard.Store(&now)
}

// watch ends the stream if the hub is silent, because a hub that hangs keeps its connection open.
func (u *uplink) watch(ctx context.Context) error {
	ticker := u.clock.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
			if u.clock.Since(*u.heard.Load()) > silence {
				return errSilent
			}
		}
	}
}

// read handles the hub's frames. It may wait for send, but send never waits for it: the hub reads even if the worker does not.
func (u *uplink) read(ctx context.Context) error {
	for {
		frame, err := u.stream.Recv()
		if err != nil {
			return fmt.Errorf("reading from the hub: %w", err)
		}
		u.hear()
		switch body := frame.GetBody().(type) {
		case *federationv1.HubFrame_ReportAck, *federationv1.HubFrame_HeartbeatAck, *federationv1.HubFrame_EndedAck:
			select {
			case u.acks <- frame:
			case <-u.sentAll: // nothing takes it; the end of the hub's side follows
			case <-ctx.Done():
				return ctx.Err()
			}
		case *federationv1.HubFrame_Dispatch:
			if err := u.dispatch(ctx, body.Dispatch); err != nil {
				return err
			}
		case *federationv1.HubFrame_Leave:
			u.unkeyedClaims.cancel(body.Leave.GetDispatches())
		case *federationv1.HubFrame_Redirect:
			u.leave(redirected(body.Redirect))
		case *federationv1.HubFrame_Trust, *federationv1.HubFrame_Renew, *federationv1.HubFrame_Certificate:
			u.certificates.take(frame)
		case *federationv1.HubFrame_Foreign:
			if err := u.foreign(body.Foreign); err != nil {
				return err
			}
		default: // from a newer hub
		}
	}
}

// send owns the outbox. Receipts and answers overtake the chunks of a long report.
func (u *uplink) send(ctx context.Context, interval time.Duration) error {
	heartbeat := u.clock.NewTicker(interval)
	defer heartbeat.Stop()
	again := u.clock.NewTicker(endedResend)
	defer again.Stop()
	defer u.disarm()
	defer u.parting.stop()
	if err := u.flush(ctx); err != nil {
		return err
	}
	for {
		var more chan struct{}
		if len(u.chunks) > 0 {
			more = ready
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case frame := <-u.receipts:
			err = u.transmit(frame)
		case o := <-u.answers:
			if err = u.sendReceipts(); err == nil {
				err = u.answer(ctx, o)
			}
		case frame := <-u.acks:
			err = u.acknowledged(ctx, frame)
		case <-heartbeat.C():
			err = u.heartbeat(ctx)
		case <-u.agent.ended:
			err = u.sendEnded()
		case <-again.C():
			err = u.sendEnded()
		case <-u.agent.source.Marked():
			err = u.collect(ctx)
		case <-u.due():
			u.disarm()
			err = u.flush(ctx)
		case <-more:
			err = u.nextChunk(ctx)
		case frame := <-u.certificates.out:
			err = u.transmit(frame)
		case reason := <-u.redirect:
			u.parting.begin(u.clock, reason)
		case <-u.parting.tick():
			if u.parting.over(u.clock.Now(), u.agent.slots.taken()) {
				return u.closeSend()
			}
		case <-u.agent.ending.closed:
			return u.closeSend()
		}
		if err != nil {
			return err
		}
	}
}

// ready is a closed channel.
var ready = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (u *uplink) transmit(frame *federationv1.WorkerFrame) error {
	if err := u.stream.Send(frame); err != nil {
		return fmt.Errorf("sending to the hub: %w", err)
	}
	return nil
}

// sendReceipts sends queued receipts, so that each precedes its answer. A receipt is queued before its call is carried out.
func (u *uplink) sendReceipts() error {
	for {
		select {
		case frame := <-u.receipts:
			if err := u.transmit(frame); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (u *uplink) acknowledged(ctx context.Context, frame *federationv1.HubFrame) error {
	u.agent.setConnected(true) // the stream is accepted
	u.certificates.accept()
	switch body := frame.GetBody().(type) {
	case *federationv1.HubFrame_ReportAck:
		u.out.ack(body.ReportAck.GetSequence())
		u.agent.metrics.unacked.Set(float64(u.out.sequence - u.out.acked))
		u.complete = u.complete || body.ReportAck.GetSendComplete()
	case *federationv1.HubFrame_HeartbeatAck:
		if body.HeartbeatAck.GetEtcdRestored() {
			return errRestored
		}
		u.confirmed(body.HeartbeatAck.GetNumber())
		u.agent.remember(body.HeartbeatAck.GetLedger())
		u.complete = u.complete || body.HeartbeatAck.GetSendComplete()
	case *federationv1.HubFrame_EndedAck:
		u.agent.remember(body.EndedAck.GetLedger())
		u.ended.acknowledged(body.EndedAck.GetBatch(), u.agent.opts.Sandboxes)
		return u.sendEnded()
	}
	return u.goOn(ctx)
}

// heartbeat sends a heartbeat that refers to the last completely sent report.
func (u *uplink) heartbeat(ctx context.Context) error {
	u.beats++
	if err := u.lookForLateWrites(ctx); err != nil {
		return err
	}
	if u.beats%refreshBeats == 0 {
		if err := u.agent.source.MarkAll(ctx, u.out.reported.Keys()); err != nil {
			return err
		}
	}
	return u.transmit(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Heartbeat{Heartbeat: &federationv1.Heartbeat{
		Number:          u.beats,
		Sequence:        u.sent.sequence,
		Digest:          u.sent.digest,
		ResourceVersion: u.agent.revision.highest.Load(),
	}}})
}

func (u *uplink) sendEnded() error {
	batch := u.ended.next(u.clock.Now(), u.agent.opts.Sandboxes)
	if batch == nil {
		return nil
	}
	return u.transmit(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Ended{Ended: batch}})
}
