// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"encoding/binary"
	"net"
)

// smallFrame is the largest SPDY frame that is written at once. In a larger frame, the pieces of the header cost little compared with the
// data.
const smallFrame = 8 << 10

// frames is a connection that SPDY is written to. It writes a small frame at once. The library writes it in three or more pieces, and each
// would be a message of the WebSocket and a record of TLS here, at the API server and at the kubelet.
//
// At most smallFrame bytes of a frame are pending, and they are written with the rest of it: the library writes whole frames, one at a
// time.
type frames struct {
	net.Conn
	pending []byte // of the current frame
	rest    int    // bytes of it that are neither written nor pending, when its header is complete
}

// Write writes a part of a frame, or of several. Calls must not overlap.
func (f *frames) Write(p []byte) (n int, err error) {
	for n < len(p) {
		took, err := f.write(p[n:])
		if n += took; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (f *frames) write(p []byte) (int, error) {
	if f.rest > 0 && len(f.pending) == 0 { // a large frame
		n, err := f.Conn.Write(p[:min(len(p), f.rest)])
		f.rest -= n
		return n, err
	}
	took := p[:min(len(p), max(f.rest, frameHeader-len(f.pending)))]
	f.pending = append(f.pending, took...)
	if f.rest > 0 {
		f.rest -= len(took)
	} else if len(f.pending) == frameHeader {
		f.rest = int(binary.BigEndian.Uint32(f.pending[4:]) & maxFrameLength)
	}
	if len(f.pending) < frameHeader || f.rest > 0 && len(f.pending)+f.rest <= smallFrame {
		return len(took), nil
	}
	_, err := f.Conn.Write(f.pending)
	f.pending = f.pending[:0]
	return len(took), err
}
