// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
)

// computing are the handshakes of this process that compute now: at most half of the processors, so that claims find one when many workers
// attach at the same time, in the hub and in a process that hosts them. A handshake that waits for its peer does not count, so that a peer
// that is slow on purpose holds up no other (I14).
var computing = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// handshaking is a connection under its handshake, which has a turn while it computes.
type handshaking struct {
	net.Conn
	turns chan struct{}
	over  atomic.Bool

	mu   sync.Mutex
	held bool
}

// begin takes a turn. The handshake follows, and end, which may come while an abandoned handshake still runs.
func begin(conn net.Conn, turns chan struct{}) *handshaking {
	h := &handshaking{Conn: conn, turns: turns}
	h.resume()
	return h
}

func (h *handshaking) end() {
	h.over.Store(true)
	h.pause()
}

// pause gives the turn back.
func (h *handshaking) pause() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		h.held = false
		<-h.turns
	}
}

// resume waits for a turn. A handshake that was abandoned meanwhile gets none.
func (h *handshaking) resume() {
	h.turns <- struct{}{}
	h.mu.Lock()
	h.held = true
	h.mu.Unlock()
	if h.over.Load() {
		h.pause()
	}
}

// Read implements net.Conn.
func (h *handshaking) Read(p []byte) (int, error) {
	if h.over.Load() {
		return h.Conn.Read(p)
	}
	h.pause()
	defer h.resume()
	return h.Conn.Read(p)
}

// Write implements net.Conn.
func (h *handshaking) Write(p []byte) (int, error) {
	if h.over.Load() {
		return h.Conn.Write(p)
	}
	h.pause()
	defer h.resume()
	return h.Conn.Write(p)
}
