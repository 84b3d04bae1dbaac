// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"net"
	"time"
)

// conn is a Tunnel to a port as net/http wants a connection. It has no deadlines: who gives up closes it.
type conn struct {
	tunnel Tunnel
	rest   []byte
	err    error
}

func newConn(t Tunnel) net.Conn { return &conn{tunnel: t} }

func (c *conn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		c.rest, c.err = c.tunnel.Recv()
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
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
