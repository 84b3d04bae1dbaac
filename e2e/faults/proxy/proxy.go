// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Faults are the faults of connections. The zero value has none.
type Faults struct {
	// Cut resets connections, and refuses new ones.
	Cut bool
	// Up is the direction to the target, Down the one from it.
	Up, Down Way
}

// Way is one direction.
type Way struct {
	// Swallow accepts all bytes and the end of the stream, and drops them: a half-open connection.
	Swallow bool
	// Stall holds everything back until it ends, and then delivers it.
	Stall bool
	// Delay is added to everything sent. It costs no throughput.
	Delay time.Duration
	// BytesPerSecond is the throughput of each connection. 0: unlimited.
	BytesPerSecond int
}

// Both is a fault of both directions.
func Both(w Way) Faults { return Faults{Up: w, Down: w} }

// Proxy forwards connections to a target.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	faults  Faults
	changed chan struct{} // closed when faults change
	pairs   map[*pair]struct{}
	closed  bool
}

// Listen opens a port on the loopback address that forwards to a target, which need not listen yet.
func Listen(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("opening a proxy to %s: %w", target, err)
	}
	p := &Proxy{target: target, listener: listener, changed: make(chan struct{}), pairs: map[*pair]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

// Address is the proxy's address.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Set replaces the faults, for open connections and new ones.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.faults
	p.faults = f
	close(p.changed)
	p.changed = make(chan struct{})
	swallowEnded := before.Up.Swallow && !f.Up.Swallow || before.Down.Swallow && !f.Down.Swallow
	for c := range p.pairs {
		if f.Cut || swallowEnded && c.lossy {
			c.reset()
		}
	}
}

// Close resets all connections and stops listening.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	for c := range p.pairs {
		c.reset()
	}
	p.mu.Unlock()
	err := p.listener.Close()
	p.running.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // out of files for a moment, or the peer is gone already
		}
		p.running.Go(func() { p.serve(conn.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(near *net.TCPConn) {
	faults, _ := p.current()
	if faults.Cut {
		resetConn(near)
		return
	}
	c := &pair{near: near, ended: make(chan struct{})}
	if faults.Up.Swallow {
		c.lossy = true // its first bytes get lost, so no connection to the target is needed
	} else {
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			resetConn(near)
			return
		}
		c.far = far.(*net.TCPConn)
	}
	if !p.add(c) {
		c.reset()
		return
	}
	defer p.remove(c)
	if c.far == nil {
		<-c.ended
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { p.forward(c, c.near, c.far, func(f Faults) Way { return f.Up }) })
	ways.Go(func() { p.forward(c, c.far, c.near, func(f Faults) Way { return f.Down }) })
	ways.Wait()
}

// add fails when the connection is no longer allowed.
func (p *Proxy) add(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.faults.Cut || c.far == nil && !p.faults.Up.Swallow {
		return false
	}
	p.pairs[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.reset()
	delete(p.pairs, c)
}

// current returns the faults, and a channel that is closed when they change.
func (p *Proxy) current() (Faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

// lost reports whether the bytes of a direction are dropped; then the connection never recovers.
func (p *Proxy) lost(c *pair, way func(Faults) Way) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !way(p.faults).Swallow {
		return false
	}
	c.lossy = true
	return true
}
