// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"net"
	"sync"
)

// Gate holds back what arrives on the connections that it dialled, while it is closed. The zero Gate is open.
type Gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil: open
}

// Close closes the gate.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

// Open opens the gate.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// Dial dials.
func (g *Gate) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return gated{conn, g}, nil
}

type gated struct {
	net.Conn
	gate *Gate
}

// Read implements net.Conn.
func (c gated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.mu.Lock()
	shut := c.gate.shut
	c.gate.mu.Unlock()
	if shut != nil {
		<-shut
	}
	return n, err
}
