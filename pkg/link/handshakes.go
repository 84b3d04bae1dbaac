// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
)

// computing holds an entry for each handshake of this process that computes now. It allows at most half of the processors, so that claims
// find a free one when many workers attach at the same time, in the hub and in a process that hosts workers. A handshake that waits for its
// peer does not count, so that a deliberately slow peer delays no other (I14).
var computing = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// handshaking is a connection during its handshake. It holds a slot while it computes.
type handshaking struct {
	net.Conn
	slots chan struct{}
	over  atomic.Bool

	mu   sync.Mutex
	held bool
}

// begin acquires a slot for the handshake. The caller calls end when it returns, even if an abandoned handshake still runs.
func begin(conn net.Conn, slots chan struct{}) *handshaking {
	h := &handshaking{Conn: conn, slots: slots}
	h.resume()
	return h
}

func (h *handshaking) end() {
	h.over.Store(true)
	h.pause()
}

// pause releases the slot.
func (h *handshaking) pause() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		h.held = false
		<-h.slots
	}
}

// resume acquires a slot. If the handshake was abandoned in the meantime, it releases the slot immediately.
func (h *handshaking) resume() {
	h.slots <- struct{}{}
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
