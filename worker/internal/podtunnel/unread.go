// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"
)

const (
	// maxUnread is how many bytes of a port may wait for its caller in this process. The SPDY library has no flow control of its own: it
	// queues 50 frames of any size for each stream, 1.6 MiB of those that container runtimes send (32 KiB).
	maxUnread = 128 << 10
	// frameHeader is the size of the header of every SPDY frame: the kind or stream, flags, and the length of the rest.
	frameHeader    = 8
	maxFrameLength = 1<<24 - 1
)

// unread is a connection that carries SPDY. It reads the next frame of data only while less than maxUnread bytes of data wait in its
// streams, so that TCP slows down the sender (I14). A larger frame passes when nothing else waits.
//
// Frames of other kinds are not counted. Those behind a waiting frame wait as well, as they do when the library's own queue is full.
type unread struct {
	net.Conn
	header [frameHeader]byte // of the current frame
	have   int               // bytes of header
	rest   uint32            // bytes of the frame after its header

	mu     sync.Mutex
	bytes  int
	fewer  chan struct{} // has capacity for one token: fewer bytes wait
	closed chan struct{}
	once   sync.Once
}

// overSPDY starts SPDY on a connection.
func overSPDY(conn net.Conn) (httpstream.Connection, error) {
	u := &unread{Conn: &frames{Conn: conn}, fewer: make(chan struct{}, 1), closed: make(chan struct{})}
	inner, err := streamspdy.NewClientConnectionWithPings(u, pingEvery)
	if err != nil {
		return nil, fmt.Errorf("beginning SPDY: %w", err)
	}
	return countedConnection{inner, u}, nil
}

// Read reads from one frame. It returns the end of a header only if there is room for the frame. Calls must not overlap.
func (u *unread) Read(p []byte) (int, error) {
	if u.have == frameHeader && u.rest == 0 {
		u.have = 0
	}
	if u.have == frameHeader {
		n, err := u.Conn.Read(p[:min(len(p), int(u.rest))])
		u.rest -= uint32(n)
		return n, err
	}
	n, err := u.Conn.Read(p[:min(len(p), frameHeader-u.have)])
	copy(u.header[u.have:], p[:n])
	if u.have += n; u.have < frameHeader {
		return n, err
	}
	u.rest = binary.BigEndian.Uint32(u.header[4:]) & maxFrameLength
	if data := u.header[0]&0x80 == 0; data && !u.take(int(u.rest)) {
		return 0, net.ErrClosed
	}
	return n, err
}

// take waits until n more bytes may wait for the caller. It returns false if the connection is closed first.
func (u *unread) take(n int) bool {
	for !u.fits(n) {
		select {
		case <-u.fewer:
		case <-u.closed:
			return false
		}
	}
	return true
}

func (u *unread) fits(n int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.bytes > 0 && u.bytes+n > maxUnread {
		return false
	}
	u.bytes += n
	return true
}

// took subtracts bytes that a stream has returned to its reader.
func (u *unread) took(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bytes -= n
	select {
	case u.fewer <- struct{}{}:
	default:
	}
}

// Close closes the connection, which also ends a waiting Read.
func (u *unread) Close() error {
	u.once.Do(func() { close(u.closed) })
	return u.Conn.Close()
}

// countedConnection is a connection whose streams count the bytes that are read from them.
type countedConnection struct {
	httpstream.Connection
	unread *unread
}

func (c countedConnection) CreateStream(headers http.Header) (httpstream.Stream, error) {
	stream, err := c.Connection.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	return countedStream{stream, c.unread}, nil
}

// Close also closes the underlying connection, because the library waits forever for a stream that was never replied to.
func (c countedConnection) Close() error {
	return errors.Join(c.Connection.Close(), c.unread.Close())
}

type countedStream struct {
	httpstream.Stream
	unread *unread
}

func (s countedStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	s.unread.took(n)
	return n, err
}
