// SPDX-License-Identifier: Apache-2.0

package simnet

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// pair is one connection: two directions.
type pair struct {
	path     *Path
	from, to string
	there    *direction
	back     *direction
}

func newPair(p *Path, from, to string, there, back *rand.Rand) *pair {
	return &pair{path: p, from: from, to: to, there: newDirection(p, there), back: newDirection(p, back)}
}

func (c *pair) client() net.Conn {
	return &conn{pair: c, in: c.back, out: c.there, local: address(c.from), remote: address(c.to)}
}

func (c *pair) server() net.Conn {
	return &conn{pair: c, in: c.there, out: c.back, local: address(c.to), remote: address(c.from)}
}

func (c *pair) wake() {
	c.there.signal()
	c.back.signal()
}

// breakOff ends both directions at once; bytes in flight are lost.
func (c *pair) breakOff(err error) {
	c.path.leave(c)
	c.there.fail(err)
	c.back.fail(err)
}

// direction carries bytes one way. One goroutine reads.
type direction struct {
	path   *Path
	random *rand.Rand
	woken  chan struct{} // one token

	mu    sync.Mutex
	queue []parcel
	last  time.Time // when the last parcel arrives: none overtakes it
	ended bool      // no more will be sent
	deaf  bool      // its reader has closed its end
	err   error     // broken
}

// parcel is one write in flight.
type parcel struct {
	data    []byte
	arrives time.Time
}

func newDirection(p *Path, random *rand.Rand) *direction {
	return &direction{path: p, random: random, woken: make(chan struct{}, 1)}
}

func (d *direction) signal() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

func (d *direction) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err, d.queue = err, nil
	}
	d.signal()
}

// refuse makes what is sent from now on meet a closed socket.
func (d *direction) refuse() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deaf, d.queue = true, nil
	d.signal()
}

func (d *direction) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	d.signal()
}

func (d *direction) send(data []byte) error {
	delay, stalled := d.path.currentDelay(), d.path.isStalled()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.err != nil:
		return d.err
	case d.deaf && stalled: // the other end's reset does not get through either
		return nil
	case d.deaf:
		return ErrReset
	case d.ended:
		return net.ErrClosed
	}
	takes := delay.Base
	if delay.Jitter > 0 {
		takes += time.Duration(d.random.Int64N(int64(delay.Jitter)))
	}
	at := time.Now().Add(takes)
	if at.Before(d.last) {
		at = d.last
	}
	if delay.Rate > 0 {
		at = at.Add(time.Duration(len(data)) * time.Second / time.Duration(delay.Rate))
	}
	d.last = at
	d.queue = append(d.queue, parcel{bytes.Clone(data), at})
	d.signal()
	return nil
}

// take reads the bytes that have arrived, or returns how long to wait: a negative time is until something changes.
func (d *direction) take(into []byte) (n int, wait time.Duration, err error) {
	stalled := d.path.isStalled()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.err != nil:
		return 0, 0, d.err
	case stalled || len(d.queue) == 0 && !d.ended:
		return 0, -1, nil
	case len(d.queue) == 0:
		return 0, 0, io.EOF
	}
	if wait := time.Until(d.queue[0].arrives); wait > 0 {
		return 0, wait, nil
	}
	for n < len(into) && len(d.queue) > 0 && !d.queue[0].arrives.After(time.Now()) {
		copied := copy(into[n:], d.queue[0].data)
		n += copied
		if d.queue[0].data = d.queue[0].data[copied:]; len(d.queue[0].data) == 0 {
			d.queue = d.queue[1:]
		}
	}
	return n, 0, nil
}

// conn is one end.
type conn struct {
	pair          *pair
	in, out       *direction
	local, remote address

	mu       sync.Mutex
	closed   bool
	deadline time.Time // for reading; a write never waits
}

// Read implements net.Conn.
func (c *conn) Read(into []byte) (int, error) {
	for {
		c.mu.Lock()
		closed, deadline := c.closed, c.deadline
		c.mu.Unlock()
		if closed {
			return 0, net.ErrClosed
		}
		n, wait, err := c.in.take(into)
		if n > 0 || err != nil {
			return n, err
		}
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
			if wait < 0 || left < wait {
				wait = left
			}
		}
		c.pause(wait)
	}
}

func (c *conn) pause(wait time.Duration) {
	if wait < 0 {
		<-c.in.woken
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.in.woken:
	case <-timer.C:
	}
}

// Write implements net.Conn.
func (c *conn) Write(data []byte) (int, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	if err := c.out.send(data); err != nil {
		if errors.Is(err, ErrReset) {
			c.in.fail(err) // a reset ends both directions
		}
		return 0, err
	}
	return len(data), nil
}

// Close implements net.Conn. Bytes written before still arrive.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.out.end()
	c.in.signal()
	// This end has no reader any more: later bytes of the other end meet a closed socket.
	c.in.refuse()
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	c.in.signal()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
