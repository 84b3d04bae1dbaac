// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"navix.sh/atoll/pkg/http2frames"
	"navix.sh/atoll/pkg/pace"
)

// maxUntaken is how many gRPC responses may wait for their callers to take them, over all connections. Each costs about 10 KiB, and no
// longer counts as a call in flight, because its handler has returned.
const maxUntaken = 4096

// untaken bounds the responses that callers do not take. An HTTP/2 caller can close its flow control window and make further calls; gRPC
// then keeps every response, and the connection, for an unlimited time. A connection that takes no response for too long is closed. If too
// many responses wait over all connections, the connection with the most waiting responses is closed, from the address with the most.
type untaken struct {
	most     int
	patience time.Duration

	mu    sync.Mutex
	all   int
	from  map[netip.Prefix]int
	conns map[string]*pacedStreams // by the peer's address and port
}

func newUntaken(most int, patience time.Duration) *untaken {
	return &untaken{most: most, patience: patience, from: map[netip.Prefix]int{}, conns: map[string]*pacedStreams{}}
}

// pacedStreams tracks the calls of one connection. The owner's mutex guards all fields except in and out.
type pacedStreams struct {
	owner  *untaken
	conn   net.Conn
	origin netip.Prefix
	meter  *meter

	fresh   map[uint32]struct{} // streams of the last read, which gRPC may not have processed yet
	open    map[uint32]struct{} // earlier streams whose response is not fully written
	last    uint32              // highest stream ID so far
	running int                 // calls whose handlers have not returned
	waiting int                 // max(0, open - running): responses that are not taken
	taken   uint64              // frames of responses written so far
	watched bool                // whether the timer of watch runs
	gone    bool
	held    map[*byte]func() // by handle: functions to call when the connection closes

	in, out http2frames.Heads
}

// follow starts to track the calls of a connection.
func (u *untaken) follow(conn net.Conn) *pacedStreams {
	p := &pacedStreams{
		owner: u, conn: conn, origin: pace.Origin(conn.RemoteAddr()), meter: meterOf(conn),
		fresh: map[uint32]struct{}{}, open: map[uint32]struct{}{},
	}
	p.in = http2frames.AfterPreface()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.conns[conn.RemoteAddr().String()] = p
	return p
}

// runs counts a call as running until the returned function is called when its handler has returned. It also returns the tracked calls of
// the connection.
func (u *untaken) runs(peer net.Addr) (of *pacedStreams, returned func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.conns[peer.String()]
	if p == nil {
		return nil, func() {}
	}
	p.running++
	p.count()
	return p, func() {
		u.mu.Lock()
		p.running--
		over := p.count()
		u.mu.Unlock()
		if over != nil {
			_ = over.conn.Close()
		}
	}
}

// count updates the totals, and returns a connection to close, or nil. The caller holds the lock.
func (p *pacedStreams) count() (over *pacedStreams) {
	if p.gone {
		return nil
	}
	u, waiting := p.owner, max(0, len(p.open)-p.running)
	u.all += waiting - p.waiting
	if u.from[p.origin] += waiting - p.waiting; u.from[p.origin] == 0 {
		delete(u.from, p.origin)
	}
	p.waiting = waiting
	if waiting > 0 && !p.watched {
		p.watched = true
		p.watch()
	}
	if u.all > u.most {
		return u.worst()
	}
	return nil
}

// worst returns the connection with the most untaken responses, from the address with the most.
func (u *untaken) worst() (worst *pacedStreams) {
	for _, p := range u.conns {
		if worst == nil || u.from[p.origin] > u.from[worst.origin] || p.origin == worst.origin && p.waiting > worst.waiting {
			worst = p
		}
	}
	return worst
}

// watch closes the connection if it takes no response for the duration of patience.
func (p *pacedStreams) watch() {
	before := p.taken
	time.AfterFunc(p.owner.patience, func() {
		p.owner.mu.Lock()
		stuck := p.waiting > 0 && p.taken == before
		if p.watched = p.waiting > 0 && !stuck && !p.gone; p.watched {
			p.watch()
		}
		p.owner.mu.Unlock()
		if stuck {
			_ = p.conn.Close()
		}
	})
}

// leave stops tracking the connection.
func (p *pacedStreams) leave() {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	if p.gone {
		return
	}
	for _, end := range p.held {
		end()
	}
	p.held = nil
	clear(p.fresh)
	clear(p.open)
	p.running = 0
	p.count()
	p.gone = true
	if at := p.conn.RemoteAddr().String(); p.owner.conns[at] == p {
		delete(p.owner.conns, at)
	}
}

// until registers end to be called when the connection closes, and returns a function that calls end earlier.
func (p *pacedStreams) until(end func()) func() {
	if p == nil {
		return end
	}
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	if p.gone {
		end()
		return end
	}
	if p.held == nil {
		p.held = map[*byte]func(){}
	}
	handle := new(byte)
	p.held[handle] = end
	return func() {
		p.owner.mu.Lock()
		delete(p.held, handle)
		p.owner.mu.Unlock()
		end()
	}
}

// read tracks frames from the caller.
func (p *pacedStreams) read(b []byte) {
	var calls, data, others int
	p.in.Pass(b, func(kind, flags byte, length int, stream uint32) {
		switch kind {
		case http2frames.Data:
			if length > 0 || flags&http2frames.EndStream != 0 {
				data++
			} else {
				others++
			}
		case http2frames.Headers:
			calls++
			p.change(func() {
				if stream > p.last {
					p.last, p.fresh[stream] = stream, struct{}{}
				}
			})
		case http2frames.Reset:
			others++
			p.change(func() { p.end(stream) })
		default:
			others++
		}
	})
	p.meter.frames(calls, data, others)
}

// seen marks everything read so far as processed by gRPC, because gRPC calls Read again only after that.
func (p *pacedStreams) seen() {
	p.change(func() {
		maps.Copy(p.open, p.fresh)
		clear(p.fresh)
	})
}

// write tracks frames to the caller.
func (p *pacedStreams) write(b []byte) {
	p.out.Pass(b, func(kind, flags byte, _ int, stream uint32) {
		if kind != http2frames.Data && kind != http2frames.Headers && kind != http2frames.Reset {
			return
		}
		p.change(func() {
			if p.taken++; kind == http2frames.Reset || flags&http2frames.EndStream != 0 {
				p.end(stream)
			}
		})
	})
}

func (p *pacedStreams) end(stream uint32) {
	delete(p.fresh, stream)
	delete(p.open, stream)
}

// change updates the calls under the lock. It never closes a connection: only a handler that returns adds an untaken response (see runs).
func (p *pacedStreams) change(f func()) {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	if !p.gone {
		f()
		p.count()
	}
}
