// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// Inside is a listener for connections that Dial makes in the same process.
type Inside struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewInside returns an open listener.
func NewInside() *Inside { return &Inside{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept implements net.Listener.
func (l *Inside) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Inside) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *Inside) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// Dial connects with the given caller address, which limits and audit then see.
func (l *Inside) Dial(ctx context.Context, from string) (net.Conn, error) {
	address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	if ip, err := netip.ParseAddr(from); err == nil {
		address = &net.TCPAddr{IP: ip.AsSlice()}
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- &fromAddress{theirs, address}:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		_ = ours.Close()
		return nil, ctx.Err()
	}
}

type fromAddress struct {
	net.Conn
	address net.Addr
}

func (c *fromAddress) RemoteAddr() net.Addr { return c.address }
