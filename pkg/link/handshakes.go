// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"runtime"
	"sync"
)

// computing are the handshakes of this process that compute now: at most half of the processors, so that claims find one when many workers
// attach at the same time, in the hub and in a process that hosts them. A handshake that waits for its peer does not count, so that a peer
// that is slow on purpose holds up no other (I14).
var computing = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// handshaking is a connection under its handshake, which has a turn while it computes.
type handshaking struct {
	net.Conn
	turns chan struct{}

	mu   sync.Mutex
	held bool
	over bool
}

// begin takes a turn. The handshake follows, and end, which may come while an abandoned handshake still runs.
func begin(conn net.Conn, turns chan struct{}) *handshaking {
	h := &handshaking{Conn: conn, turns: turns}
	h.resume()
	return h
}

func (h *handshaking) end() {
	h.pause()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
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

// resume waits for a turn, if the handshake is not over.
func (h *handshaking) resume() {
	h.mu.Lock()
	over := h.over
	h.mu.Unlock()
	if over {
		return
	}
	h.turns <- struct{}{}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held = !h.over; h.over {
		<-h.turns
	}
}

// Read implements net.Conn.
func (h *handshaking) Read(p []byte) (int, error) {
	h.pause()
	defer h.resume()
	return h.Conn.Read(p)
}

// Write implements net.Conn.
func (h *handshaking) Write(p []byte) (int, error) {
	h.pause()
	defer h.resume()
	return h.Conn.Write(p)
}
