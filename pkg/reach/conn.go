// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
)

// conn adapts a Tunnel to a port to the net.Conn that net/http needs. It has no deadlines; a caller that abandons it must close it. It
// bounds the header of each response in size and time.
type conn struct {
	tunnel Tunnel
	rest   []byte
	err    error

	next    atomic.Bool // a request begins, and its response is read next
	head    head
	arrival *time.Timer // runs while a header arrives
	late    atomic.Bool
}

// NewConn returns a connection over a tunnel.
func NewConn(t Tunnel) net.Conn {
	c := &conn{tunnel: t}
	c.arrival = time.AfterFunc(headTimeout, func() {
		c.late.Store(true)
		c.tunnel.Close(nil)
	})
	c.arrival.Stop()
	return c
}

// begin marks the start of a request. It is called before the request is written, when no response is in progress.
func (c *conn) begin() { c.next.Store(true) }

// Prepare connects to a port of a sandbox that is not delivered to its caller yet, for one HTTP response. It does not count as activity.
func Prepare(ctx context.Context, o Opener, id string, port int32) (net.Conn, error) {
	tunnel, err := o.Open(ctx, id, &federationv1.ReachCall{
		Preparing: true, What: &federationv1.ReachCall_Port{Port: &federationv1.PortReach{Port: port}},
	})
	if err != nil {
		return nil, err
	}
	return NewConn(tunnel), nil
}

func (c *conn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		c.rest, c.err = c.tunnel.Recv()
		if c.next.Swap(false) {
			c.head = head{}
		}
		if !c.head.over {
			c.watch()
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// watch starts and stops the header's timer.
func (c *conn) watch() {
	before := c.head.under
	err := c.head.pass(c.rest)
	if c.late.Load() {
		err = problem.New(problem.Unavailable, "the sandbox's response has a header that did not arrive within %s", headTimeout)
	}
	if err != nil {
		c.rest, c.err = nil, err
		c.tunnel.Close(nil)
	}
	switch after := c.head.under && c.err == nil; {
	case after && !before:
		c.arrival.Reset(headTimeout)
	case before && !after:
		c.arrival.Stop()
	}
}

func (c *conn) Write(p []byte) (int, error) {
	for at := 0; at < len(p); {
		piece := p[at:min(len(p), at+MaxMessage-1)]
		if err := c.tunnel.Send(piece); err != nil {
			return at, err
		}
		at += len(piece)
	}
	return len(p), nil
}

func (c *conn) CloseWrite() error { return c.tunnel.CloseSend() }

func (c *conn) Close() error {
	c.arrival.Stop()
	c.tunnel.Close(nil)
	return nil
}

type address struct{}

func (address) Network() string { return "tunnel" }
func (address) String() string  { return "sandbox" }

func (c *conn) LocalAddr() net.Addr              { return address{} }
func (c *conn) RemoteAddr() net.Addr             { return address{} }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
