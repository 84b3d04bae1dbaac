// SPDX-License-Identifier: Apache-2.0

package linkfaults

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// swapPatience is how long a frame that is to be overtaken waits for its successor.
const swapPatience = 5 * time.Second

// sender applies faults to what one end of a stream sends.
type sender struct {
	source *Source
	ctx    context.Context // of the stream

	over    atomic.Bool
	mu      sync.Mutex // guards send and the following fields; held while the peer does not read
	send    func(any) error
	swapped []any // to be sent after the next frame
}

// sendMsg sends a frame or keeps a copy: the caller may reuse it.
func (s *sender) sendMsg(frame any) error {
	f := s.source.decide(kindOf(frame))
	switch {
	case f.drop:
		return s.ctx.Err()
	case f.delay > 0:
		s.later(f.delay, clone(frame), f.duplicate)
		return s.ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.swap && len(s.swapped) == 0 {
		s.swapped = append(s.swapped, clone(frame))
		go s.waitFor(swapPatience, s.flush)
		return s.ctx.Err()
	}
	if err := s.sendTimes(frame, f.duplicate); err != nil {
		return err
	}
	return s.flushLocked()
}

func clone(frame any) any {
	if message, ok := frame.(proto.Message); ok {
		return proto.Clone(message)
	}
	return frame
}

// sendTimes sends a frame once or twice. The caller holds the lock.
func (s *sender) sendTimes(frame any, twice bool) error {
	if s.over.Load() {
		return context.Canceled
	}
	if err := s.send(frame); err != nil || !twice {
		return err
	}
	return s.send(frame)
}

func (s *sender) later(delay time.Duration, frame any, twice bool) {
	go s.waitFor(delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = s.sendTimes(frame, twice) // the owner of the stream learns of its end elsewhere
	})
}

func (s *sender) waitFor(d time.Duration, do func()) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.ctx.Done():
	case <-timer.C:
		do()
	}
}

func (s *sender) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.flushLocked() // the owner of the stream learns of its end elsewhere
}

func (s *sender) flushLocked() error {
	held := s.swapped
	s.swapped = nil
	for _, frame := range held {
		if err := s.sendTimes(frame, false); err != nil {
			return err
		}
	}
	return nil
}

// Server applies faults to what a server sends.
func (s *Source) Server() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(stream.Context())
		spoiled := &serverStream{ServerStream: stream, sender: sender{source: s, ctx: ctx, send: stream.SendMsg}}
		// Do not wait for the senders, which only the handler's return unblocks.
		defer spoiled.over.Store(true)
		defer cancel()
		return handler(srv, spoiled)
	}
}

type serverStream struct {
	grpc.ServerStream
	sender
}

func (s *serverStream) SendMsg(frame any) error { return s.sendMsg(frame) }

// Client applies faults to what a client sends. Closing the send direction of a stream overtakes delayed frames.
func (s *Source) Client() grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, conn, method, opts...)
		if err != nil {
			return nil, err
		}
		return &clientStream{ClientStream: stream, sender: sender{source: s, ctx: stream.Context(), send: stream.SendMsg}}, nil
	}
}

type clientStream struct {
	grpc.ClientStream
	sender
}

func (s *clientStream) SendMsg(frame any) error { return s.sendMsg(frame) }

func (s *clientStream) CloseSend() error {
	s.over.Store(true)
	return s.ClientStream.CloseSend()
}
