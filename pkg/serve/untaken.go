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

// maxUntaken is how many responses over gRPC may wait for their callers to take them, over all connections. Each takes about
// 10 KiB, and no longer counts as a call in flight; because its handler has returned.
const maxUntaken = 4096

// untaken bounds the responses that callers do not take. HTTP/2 lets a caller forbid data and send further calls; gRPC then keeps
// every response, and the connection with them, without a bound in time. A connection whose callers take none for too long is
// closed; where there are too many in all, the one with the most of the address with the most.
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

// pacedStreams are the calls of one connection. The owner's mutex guards all but in and out.
type pacedStreams struct {
	owner  *untaken
	conn   net.Conn
	origin netip.Prefix
	meter  *meter

	fresh   map[uint32]struct{} // begun by what was read last, which gRPC may not have seen yet
	open    map[uint32]struct{} // begun before, and not ended on the wire
	last    uint32              // the highest that has begun
	running int                 // whose handlers have not returned
	waiting int                 // max(0, open - running): responses that are not taken
	taken   uint64              // frames of responses
	watched bool                // a timer runs
	gone    bool
	held    map[*byte]func() // by a handle: called when the connection closes

	in, out http2frames.Heads
}

// follow begins to count the calls of a connection.
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

// runs counts a call of a connection until the returned function is called: its handler has returned. It also returns the connection's
// calls.
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

// count notes what has changed, and returns a connection to close, if any. The caller holds the lock.
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

// worst returns the connection with the most responses that are not taken, of the address with the most.
func (u *untaken) worst() (worst *pacedStreams) {
	for _, p := range u.conns {
		if worst == nil || u.from[p.origin] > u.from[worst.origin] || p.origin == worst.origin && p.waiting > worst.waiting {
			worst = p
		}
	}
	return worst
}

// watch closes the connection when none of its responses was taken for the whole patience.
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

// leave stops counting.
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

// until returns end, which is also called when the connection closes.
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

// read notes what the caller sends.
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

// seen notes that gRPC has taken in all that was read; because it reads on.
func (p *pacedStreams) seen() {
	p.change(func() {
		maps.Copy(p.open, p.fresh)
		clear(p.fresh)
	})
}

// write notes what the server sends.
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

// change changes the calls. A connection with too many is closed when a handler returns; because only that adds a response.
func (p *pacedStreams) change(f func()) {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	if !p.gone {
		f()
		p.count()
	}
}
