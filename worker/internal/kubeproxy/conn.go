// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"navix.sh/atoll/pkg/reach"
)

// Caller is the hub's end of a tunnel.
type Caller interface {
	reach.Caller
	// Cut is closed when the tunnel is over.
	Cut() <-chan struct{}
}

// conn adapts a tunnel to a net.Conn for net/http's server. The hub's messages pass through a pipe because it supports deadlines, by which
// the server waits for a request's end. The pipe has no buffer, so that flow control slows down the caller.
type conn struct {
	caller Caller
	who    Identity
	ctx    context.Context // ends with the tunnel
	cancel context.CancelFunc

	in      net.Conn // read by the server
	sending sync.Mutex
	once    sync.Once
	closed  chan struct{}
	heard   chan struct{} // closed when the hub has ended the tunnel
}

func newConn(caller Caller, who Identity) *conn {
	read, write := net.Pipe()
	c := &conn{caller: caller, who: who, in: read, closed: make(chan struct{}), heard: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.receive(write)
	go func() {
		select {
		case <-caller.Cut():
		case <-c.heard:
		}
		c.cancel()
		_ = write.Close() // unblocks receive
	}()
	return c
}

// receive passes on the hub's messages until the hub ends the tunnel.
func (c *conn) receive(write net.Conn) {
	defer close(c.heard)
	for {
		message, err := c.caller.Recv()
		switch {
		case errors.Is(err, io.EOF):
			_ = write.Close() // a further Recv waits for the end
		case err != nil:
			return
		default:
			_, _ = write.Write(message) // fails after the server has closed the connection
		}
	}
}

func (c *conn) Read(p []byte) (int, error) { return c.in.Read(p) }

func (c *conn) Write(p []byte) (int, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	for at := 0; at < len(p); {
		piece := p[at:min(len(p), at+reach.MaxMessage-1)]
		if err := c.caller.Send(piece); err != nil {
			return at, err
		}
		at += len(piece)
	}
	return len(p), nil
}

// CloseWrite tells the hub that nothing follows. The hub ends the tunnel when it has read that. If this side ended the tunnel, the last
// messages could be lost.
func (c *conn) CloseWrite() error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.caller.CloseSend()
}

// Close implements net.Conn. It does not wait for the hub.
func (c *conn) Close() error {
	c.once.Do(func() {
		_ = c.in.Close()
		close(c.closed)
		go func() { _ = c.CloseWrite() }() // fails if the tunnel has failed
	})
	return nil
}

// wait returns when both ends are done.
func (c *conn) wait() {
	<-c.closed
	<-c.heard
	c.cancel()
	c.caller.Close(nil)
}

type address struct{}

func (address) Network() string { return "tunnel" }
func (address) String() string  { return "hub" }

func (c *conn) LocalAddr() net.Addr               { return address{} }
func (c *conn) RemoteAddr() net.Addr              { return address{} }
func (c *conn) SetDeadline(t time.Time) error     { return c.in.SetReadDeadline(t) }
func (c *conn) SetReadDeadline(t time.Time) error { return c.in.SetReadDeadline(t) }
func (c *conn) SetWriteDeadline(time.Time) error  { return nil }
