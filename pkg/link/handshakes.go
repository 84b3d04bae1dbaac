// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"runtime"
	"sync/atomic"
)

// computing are the handshakes of this process that compute now: at most half of the processors, so that claims find one when many workers
// attach at the same time. A handshake that waits for its peer does not count, so that a peer that is slow on purpose holds up no other
// (I14).
var computing = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// handshaking is a connection under its handshake, which has a turn while it computes.
type handshaking struct {
	net.Conn
	turns chan struct{}
	over  atomic.Bool
}

// begin takes a turn. The handshake follows, and end.
func begin(conn net.Conn, turns chan struct{}) *handshaking {
	turns <- struct{}{}
	return &handshaking{Conn: conn, turns: turns}
}

func (h *handshaking) end() {
	h.over.Store(true)
	<-h.turns
}

// Read implements net.Conn.
func (h *handshaking) Read(p []byte) (int, error) {
	if h.over.Load() {
		return h.Conn.Read(p)
	}
	<-h.turns
	defer func() { h.turns <- struct{}{} }()
	return h.Conn.Read(p)
}

// Write implements net.Conn.
func (h *handshaking) Write(p []byte) (int, error) {
	if h.over.Load() {
		return h.Conn.Write(p)
	}
	<-h.turns
	defer func() { h.turns <- struct{}{} }()
	return h.Conn.Write(p)
}
