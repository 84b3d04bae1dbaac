// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"sync"

	"navix.sh/atoll/pkg/reach"
)

// session is one tunnel. inner is the connection to the API server.
type session struct {
	service *Service
	id      string
	ctx     context.Context
	cut     context.CancelCauseFunc // does not block
	once    sync.Once
	leave   func() // frees its seat
	quiet   bool   // its messages are no activity

	inner reach.Tunnel // set before callers get the session
	stop  func() bool
}

func newSession(s *Service, id string, leave func()) *session {
	session := &session{service: s, id: id, leave: leave}
	session.ctx, session.cut = context.WithCancelCause(context.Background())
	return session
}

// attach sets the session's connection. From now on a cut closes it.
func (s *session) attach(inner reach.Tunnel) {
	s.inner = inner
	s.stop = context.AfterFunc(s.ctx, func() { inner.Close(nil) })
}

// check returns why the session was cut, if it was. It is called for every message.
func (s *session) check() error {
	if s.ctx.Err() == nil && !s.service.opts.Lease.Held() {
		s.cut(errNotLeading)
	}
	return context.Cause(s.ctx)
}

// note records activity, unless the session was cut: a sandbox that has ended needs none.
func (s *session) note() {
	if s.quiet {
		return
	}
	s.service.noteActive(s.id)
	if s.ctx.Err() != nil {
		s.service.opts.Activity.forget(s.id)
	}
}

// Recv returns the next message of the sandbox.
func (s *session) Recv() ([]byte, error) {
	message, err := s.inner.Recv()
	if cause := s.check(); cause != nil {
		return nil, cause
	}
	if len(message) > 0 {
		s.note()
	}
	return message, err
}

// Send sends a message to the sandbox.
func (s *session) Send(message []byte) error {
	if err := s.check(); err != nil {
		return err
	}
	s.note()
	return s.inner.Send(message)
}

// CloseSend signals the end of the messages to the sandbox.
func (s *session) CloseSend() error {
	if err := s.check(); err != nil {
		return err
	}
	return s.inner.CloseSend()
}

// Close ends the session. Its error concerns only the caller.
func (s *session) Close(error) {
	s.once.Do(func() {
		if s.stop != nil {
			s.stop()
			s.inner.Close(nil)
		}
		s.cut(nil)
		s.service.forget(s)
	})
}

// Cut is closed when the session has ended.
func (s *session) Cut() <-chan struct{} { return s.ctx.Done() }
