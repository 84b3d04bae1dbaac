// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// copyPatience is how long the other replica may take to make a message durable.
const copyPatience = 3 * time.Second

var (
	errSlow     = errors.New("the replica does not acknowledge")
	errOneself  = errors.New("the replica is this one itself")
	errProtocol = errors.New("the replica does not keep to the protocol")
)

// stream is either end of a Copy stream.
type stream interface {
	Send(*federationv1.CopyFrame) error
	Recv() (*federationv1.CopyFrame, error)
}

// session is one stream between two replicas. Both ends act alike.
type session struct {
	history *History
	stream  stream
	// progress is called when the other replica has acknowledged the log up to a number. whole is true if it has all records.
	progress func(upTo uint64, whole bool)
	caught   func() // called when this replica has all of the other's records

	// Receiving never waits for sending. Otherwise two replicas could wait for each other forever.
	out    chan *federationv1.CopyFrame
	hello  chan string
	resume chan uint64
	acks   chan uint64
	sent   chan []string // ids of records that the hub has stored
}

func newSession(h *History, s stream, progress func(upTo uint64, whole bool), caught func()) *session {
	return &session{
		history: h, stream: s, progress: progress, caught: caught,
		out: make(chan *federationv1.CopyFrame, 1024), hello: make(chan string, 1), resume: make(chan uint64, 1), acks: make(chan uint64, 1),
		sent: make(chan []string, 16),
	}
}

// run returns when the session is over. readers counts the goroutine that reads the stream, which ends with the stream.
func (s *session) run(ctx context.Context, readers *sync.WaitGroup) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	readers.Go(func() { cancel(s.receive(ctx)) })
	err := s.send(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// tell passes on which records the hub has stored. If there is no room, the other replica asks for them when it reconnects.
func (s *session) tell(ids []string) {
	select {
	case s.sent <- ids:
	default:
	}
}

func (s *session) receive(ctx context.Context) error {
	file := ""
	for {
		frame, err := s.stream.Recv()
		if err != nil {
			return fmt.Errorf("reading from a replica: %w", err)
		}
		switch body := frame.GetBody().(type) {
		case *federationv1.CopyFrame_Hello:
			if file != "" || body.Hello.GetFile() == "" {
				return errProtocol
			}
			if file = body.Hello.GetFile(); file == s.history.file {
				return errOneself
			}
			s.hello <- file
			err = s.reply(ctx, &federationv1.CopyFrame{Body: &federationv1.CopyFrame_Resume{
				Resume: &federationv1.CopyResume{Seen: s.history.upTo(file)},
			}})
		case *federationv1.CopyFrame_Resume:
			if file == "" {
				return errProtocol
			}
			err = hand(ctx, s.resume, body.Resume.GetSeen())
		case *federationv1.CopyFrame_Ack:
			err = hand(ctx, s.acks, body.Ack.GetUpTo())
		case *federationv1.CopyFrame_Records:
			if file == "" {
				return errProtocol
			}
			err = s.take(ctx, file, body.Records)
		case *federationv1.CopyFrame_Unsent:
			if sent := s.history.sentOf(body.Unsent.GetIds()); len(sent) > 0 {
				err = s.reply(ctx, sentFrame(sent))
			}
		case *federationv1.CopyFrame_Sent:
			s.history.sent(body.Sent.GetIds())
		default: // from a newer replica
		}
		if err != nil {
			return err
		}
	}
}

func (s *session) take(ctx context.Context, file string, records *federationv1.CopyRecords) error {
	if err := s.history.take(ctx, file, records); err != nil {
		return fmt.Errorf("keeping copies: %w", err)
	}
	if !records.GetMore() {
		s.caught()
	}
	return s.reply(ctx, &federationv1.CopyFrame{Body: &federationv1.CopyFrame_Ack{Ack: &federationv1.CopyAck{UpTo: records.GetUpTo()}}})
}

func (s *session) reply(ctx context.Context, frame *federationv1.CopyFrame) error {
	return hand(ctx, s.out, frame)
}

func hand[T any](ctx context.Context, to chan<- T, what T) error {
	select {
	case to <- what:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func sentFrame(ids []string) *federationv1.CopyFrame {
	return &federationv1.CopyFrame{Body: &federationv1.CopyFrame_Sent{Sent: &federationv1.CopySent{Ids: ids}}}
}

// send is the only writer of the stream. It waits for the acknowledgement of one batch before it sends the next. Records that arrive
// meanwhile share the next batch.
func (s *session) send(ctx context.Context) error {
	hello := &federationv1.CopyHello{File: s.history.file}
	if err := s.stream.Send(&federationv1.CopyFrame{Body: &federationv1.CopyFrame_Hello{Hello: hello}}); err != nil {
		return fmt.Errorf("writing to a replica: %w", err)
	}
	var file string
	var upTo uint64                // acknowledged by the other replica
	begun, waiting := false, false // copies are being sent; a batch is unacknowledged
	var under uint64               // the batch under way
	var more bool                  // there is more after it
	patience := s.history.opts.Clock.NewTimer(copyPatience)
	defer patience.Stop()
	first := true
	for {
		last, grown := s.history.highestAndGrown()
		if begun && !waiting && (first || more || upTo < last) {
			batch, err := s.history.since(ctx, upTo, file)
			if err != nil {
				return err
			}
			if err := s.write(&federationv1.CopyFrame{Body: &federationv1.CopyFrame_Records{Records: batch}}); err != nil {
				return err
			}
			under, more, waiting, first = batch.GetUpTo(), batch.GetMore(), true, false
			patience.Reset(copyPatience)
			continue
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case frame := <-s.out:
			err = s.write(frame)
		case ids := <-s.sent:
			err = s.write(sentFrame(ids))
		case file = <-s.hello:
		case upTo = <-s.resume:
			if file == "" {
				file = <-s.hello // arrives first; without it the other replica's records cannot be distinguished from this one's
			}
			begun = true
			if upTo > last {
				upTo = 0
			}
			err = s.ask()
		case n := <-s.acks:
			if !waiting || n != under {
				return errProtocol
			}
			waiting, upTo = false, n
			s.progress(n, !more)
		case <-patience.C():
			if waiting || !begun {
				return errSlow
			}
		case <-grown:
		}
		if err != nil {
			return err
		}
	}
}

func (s *session) write(frame *federationv1.CopyFrame) error {
	if err := s.stream.Send(frame); err != nil {
		return fmt.Errorf("writing to a replica: %w", err)
	}
	return nil
}

// ask asks the other replica which of the unsent records the hub has stored.
func (s *session) ask() error {
	for ids := range slices.Chunk(s.history.unsentIDs(), 1000) {
		err := s.write(&federationv1.CopyFrame{Body: &federationv1.CopyFrame_Unsent{Unsent: &federationv1.CopyUnsent{Ids: ids}}})
		if err != nil {
			return err
		}
	}
	return nil
}
