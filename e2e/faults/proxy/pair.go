// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunkSize = 16 << 10
	// window bounds the chunks in flight in one direction: a network's capacity, beyond which senders wait.
	window = 64
	// slicesPerSecond is the granularity of throttling.
	slicesPerSecond = 20
)

// pair is one forwarded connection.
type pair struct {
	near, far *net.TCPConn // far is nil where nothing ever arrives
	lossy     bool         // guarded by the proxy's lock

	once  sync.Once
	ended chan struct{}
}

// reset ends both connections with a TCP reset.
func (c *pair) reset() {
	c.once.Do(func() {
		close(c.ended)
		resetConn(c.near)
		if c.far != nil {
			resetConn(c.far)
		}
	})
}

func resetConn(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// chunk is the result of one read. The last chunk of a direction has no data and says how the direction ended.
type chunk struct {
	data []byte
	read time.Time
	err  error
}

// forward copies one direction of a connection until it ends.
func (p *Proxy) forward(c *pair, from, to *net.TCPConn, way func(Faults) Way) {
	chunks := make(chan chunk, window)
	p.running.Go(func() { c.read(from, chunks) })
	for next := range chunks {
		if p.lost(c, way) {
			continue
		}
		if !p.pass(c, next.read, way) {
			continue // swallowed after all, or the connection is over: the reader ends too
		}
		if next.err != nil {
			c.finish(to, next.err)
			break
		}
		if !p.write(c, to, next.data, way) {
			c.reset()
		}
	}
	for range chunks { // the reader must not wait for a direction that has ended
	}
}

func (c *pair) read(from *net.TCPConn, chunks chan<- chunk) {
	defer close(chunks)
	for {
		data := make([]byte, chunkSize)
		n, err := from.Read(data)
		now := time.Now()
		if n > 0 {
			chunks <- chunk{data: data[:n], read: now}
		}
		if err != nil {
			chunks <- chunk{err: err, read: now}
			return
		}
	}
}

// finish passes on how the sender ended the direction.
func (c *pair) finish(to *net.TCPConn, err error) {
	if !errors.Is(err, io.EOF) || to.CloseWrite() != nil {
		c.reset()
	}
}

// pass waits until a chunk read at that time may arrive, and reports whether it may.
func (p *Proxy) pass(c *pair, read time.Time, way func(Faults) Way) bool {
	for {
		faults, changed := p.current()
		w := way(faults)
		if w.Swallow {
			return !p.lost(c, way)
		}
		var due <-chan time.Time
		if !w.Stall {
			wait := time.Until(read.Add(w.Delay))
			if wait <= 0 {
				return true
			}
			timer := time.NewTimer(wait)
			defer timer.Stop()
			due = timer.C
		}
		select {
		case <-c.ended:
			return false
		case <-changed:
		case <-due:
			return true
		}
	}
}

// write writes at the direction's rate, and reports whether the connection is still usable.
func (p *Proxy) write(c *pair, to *net.TCPConn, data []byte, way func(Faults) Way) bool {
	for len(data) > 0 {
		faults, changed := p.current()
		rate := way(faults).BytesPerSecond
		part := data
		if rate > 0 {
			part = data[:min(len(data), max(1, rate/slicesPerSecond))]
		}
		if _, err := to.Write(part); err != nil {
			return false
		}
		data = data[len(part):]
		if rate == 0 {
			continue
		}
		timer := time.NewTimer(time.Duration(len(part)) * time.Second / time.Duration(rate))
		select {
		case <-c.ended:
			timer.Stop()
			return false
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
	return true
}
