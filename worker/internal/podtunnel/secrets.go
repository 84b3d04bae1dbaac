// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"navix.sh/atoll/api/envd"
	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/sandboxd"
	"navix.sh/atoll/worker/internal/sandboxes"
)

// give sends values of Secrets to the daemon of a session's sandbox. The request goes through the session, which any end of the sandbox
// cuts, so no other sandbox gets the values (I13). The session carries nothing else.
func (s *Service) give(session *session, place sandboxes.Place, what *federationv1.SecretsReach, caller string) error {
	if s.opts.Secrets == nil {
		return problem.New(problem.Unimplemented, "this worker reads no Secrets for sandboxes")
	}
	values, err := s.opts.Secrets.Read(session.ctx, place.Pod.Namespace, place.Team, what.GetSecrets())
	if err != nil {
		return err
	}
	inner, err := s.opts.Upstream.Dial(session.ctx, place, &federationv1.ReachCall{
		SandboxId: session.id, Caller: caller, What: &federationv1.ReachCall_Port{Port: &federationv1.PortReach{Port: envd.Port}},
	})
	if err != nil {
		return err
	}
	defer inner.Close(nil)
	cut := context.AfterFunc(session.ctx, func() { inner.Close(nil) })
	defer cut()
	daemon := sandboxd.Dial(what.GetToken(), 0, func(context.Context) (net.Conn, error) {
		return reach.NewConn(&request{Tunnel: inner, session: session}), nil
	})
	if err := daemon.Init(session.ctx, sandboxd.Defaults{Env: values}, time.Time{}); err != nil {
		return notGiven(err)
	}
	session.attach(given{})
	return nil
}

// notGiven returns the error for a daemon that did not accept variables. It does not quote the daemon, which may quote a value.
func notGiven(err error) error {
	var known *problem.Error
	var refused *sandboxd.StatusError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &refused):
		return problem.New(problem.Misconfigured, "secrets: the sandbox's daemon refused them with status %d at port %d",
			refused.Status, envd.Port)
	default:
		return problem.New(problem.Misconfigured, "secrets: the sandbox's daemon did not accept them at port %d", envd.Port)
	}
}

// request is the connection of one request. Its messages are checked like those of a session.
type request struct {
	reach.Tunnel
	session *session
}

func (r *request) Recv() ([]byte, error) {
	message, err := r.Tunnel.Recv()
	if cause := r.session.check(); cause != nil {
		return nil, cause
	}
	return message, err
}

func (r *request) Send(message []byte) error {
	if err := r.session.check(); err != nil {
		return err
	}
	return r.Tunnel.Send(message)
}

// given is the inner tunnel of a session after values were sent or the sandbox was prepared. It carries nothing.
type given struct{}

func (given) Recv() ([]byte, error) { return nil, io.EOF }
func (given) Send([]byte) error     { return nil }
func (given) CloseSend() error      { return nil }
func (given) Close(error)           {}
func (given) Cut() <-chan struct{}  { return nil }
