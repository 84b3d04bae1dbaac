// SPDX-License-Identifier: Apache-2.0

// Package http2frames finds the headers of HTTP/2 frames in the data of a connection, so that a server can limit frames that cost it time
// but are not calls (I14).
//
// In: the bytes of one direction, in order. Out: type, flags, length and stream of each frame. It skips bodies, and stores at most one
// frame header.
package http2frames

import "encoding/binary"

// Types and flags of frames.
const (
	Data      = 0
	Headers   = 1
	Reset     = 3
	EndStream = 1
)

// Preface is what a client sends before its first frame.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// headSize is the size of a frame header: length, type, flags, stream.
const headSize = 9

// Heads finds the frame headers in one direction of a connection. The zero value starts at a frame.
type Heads struct {
	head [headSize]byte
	have int // bytes in head
	skip int // bytes to skip before the next header
}

// AfterPreface returns a Heads that starts at a client's Preface.
func AfterPreface() Heads { return Heads{skip: len(Preface)} }

// Pass calls found for each frame header that b completes.
func (h *Heads) Pass(b []byte, found func(kind, flags byte, length int, stream uint32)) {
	for len(b) > 0 {
		if h.skip > 0 {
			n := min(h.skip, len(b))
			h.skip, b = h.skip-n, b[n:]
			continue
		}
		n := copy(h.head[h.have:], b)
		h.have, b = h.have+n, b[n:]
		if h.have < headSize {
			return
		}
		h.have, h.skip = 0, int(h.head[0])<<16|int(h.head[1])<<8|int(h.head[2])
		found(h.head[3], h.head[4], h.skip, binary.BigEndian.Uint32(h.head[5:])&(1<<31-1))
	}
}
