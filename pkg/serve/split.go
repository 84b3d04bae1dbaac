// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// preface begins every HTTP/2 connection ("PRI * HTTP/2.0…") and no HTTP/1.1 request.
const preface = "PRI"

// splitter divides the connections of one listener between two servers.
type splitter struct {
	root             net.Listener
	within, patience time.Duration // time limits of the first bytes and of a write
	untaken          *untaken
	grpc             *lane
	http             *lane
	done             chan struct{}
	once             sync.Once
}

func newSplitter(root net.Listener, within, patience time.Duration, u *untaken) *splitter {
	s := &splitter{root: root, within: within, patience: patience, untaken: u, done: make(chan struct{})}
	s.grpc = &lane{conns: make(chan net.Conn), owner: s}
	s.http = &lane{conns: make(chan net.Conn), owner: s}
	return s
}

// run accepts until the listener is closed.
func (s *splitter) run() error {
	var sorting sync.WaitGroup
	defer sorting.Wait()
	defer s.close()
	for {
		conn, err := s.root.Accept()
		if err != nil {
			return err
		}
		sorting.Go(func() { s.sort(conn) })
	}
}

// sort reads the first bytes, which includes the TLS handshake, and passes the connection with these bytes to one of the servers.
func (s *splitter) sort(conn net.Conn) {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		// A connection that sends nothing must not delay the shutdown.
		select {
		case <-s.done:
			_ = conn.Close()
		case <-stop:
		}
	}()
	head := make([]byte, len(preface))
	_ = conn.SetReadDeadline(time.Now().Add(s.within))
	if _, err := io.ReadFull(conn, head); err != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	var target *lane
	var handed net.Conn
	if string(head) == preface {
		target, handed = s.grpc, newPaced(&replayed{Conn: conn, head: head}, s.patience, s.untaken)
	} else {
		target, handed = s.http, &replayed{Conn: conn, head: head, lines: &headLines{}}
	}
	select {
	case target.conns <- handed:
	case <-s.done:
		_ = handed.Close()
	}
}

func (s *splitter) close() {
	s.once.Do(func() {
		close(s.done)
		_ = s.root.Close()
	})
}

// lane is the listener of one of the two servers. Closing it closes both, so that neither server continues without the other.
type lane struct {
	conns chan net.Conn
	owner *splitter
}

func (l *lane) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.owner.done:
		return nil, net.ErrClosed
	}
}

func (l *lane) Close() error {
	l.owner.close()
	return nil
}

func (l *lane) Addr() net.Addr { return l.owner.root.Addr() }

// replayed is a connection whose first bytes were already read.
type replayed struct {
	net.Conn
	head  []byte
	lines *headLines // nil: HTTP/2, which has its own bound on headers
}

func (c *replayed) Read(b []byte) (n int, err error) {
	if len(c.head) > 0 {
		n = copy(b, c.head)
		c.head = c.head[n:]
	} else {
		n, err = c.Conn.Read(b)
	}
	if c.lines != nil && !c.lines.pass(b[:n]) {
		c.refuseHeader()
		return 0, errManyLines
	}
	return n, err
}

// refuseHeader responds and then reads on for a moment, because closing a connection with unread bytes would discard the response.
func (c *replayed) refuseHeader() {
	_ = c.SetDeadline(time.Now().Add(parting))
	_, _ = io.WriteString(c.Conn, "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	_, _ = io.CopyN(io.Discard, c.Conn, partingBytes)
}

const (
	parting      = 500 * time.Millisecond
	partingBytes = 64 << 10
)

// CloseWrite lets the peer read the response before the connection closes, even if the peer still sends.
func (c *replayed) CloseWrite() error { return closeWrite(c.Conn) }

// maxLines bounds the lines of a request header. net/http has no such bound, and a field takes thirty times the memory of its shortest
// line.
const maxLines = 256

var errManyLines = errors.New("a header of too many lines")

// headLines counts the lines of a header as it arrives.
type headLines struct {
	past  atomic.Bool // the header was read; what follows is a body or a conversation
	count int
	empty bool // the line so far is empty
}

// pass reports whether the header may continue.
func (h *headLines) pass(p []byte) bool {
	for i := 0; i < len(p) && !h.past.Load(); i++ {
		switch {
		case p[i] == '\n' && h.empty && h.count > 0:
			h.past.Store(true)
		case p[i] == '\n':
			if h.count, h.empty = h.count+1, true; h.count > maxLines {
				return false
			}
		case p[i] != '\r':
			h.empty = false
		}
	}
	if h.past.Load() {
		h.count, h.empty = 0, false
	}
	return true
}

// headBegins is called when a connection waits for its next request.
func headBegins(conn net.Conn, state http.ConnState) {
	if c, ok := conn.(*replayed); ok && state == http.StateIdle && c.lines != nil {
		c.lines.past.Store(false)
	}
}

// paced is a gRPC connection that is not read while a write to it is blocked. gRPC keeps an unlimited number of responses for a caller that
// sends requests and reads no response. A connection that takes nothing for too long is closed.
type paced struct {
	net.Conn
	patience time.Duration
	writing  chan struct{} // holds one during a write
	streams  *pacedStreams
}

func newPaced(conn net.Conn, patience time.Duration, u *untaken) *paced {
	return &paced{Conn: conn, patience: patience, writing: make(chan struct{}, 1), streams: u.follow(conn)}
}

func (c *paced) Write(b []byte) (int, error) {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	c.streams.write(b)
	_ = c.SetWriteDeadline(time.Now().Add(c.patience))
	return c.Conn.Write(b)
}

func (c *paced) Read(b []byte) (int, error) {
	c.writing <- struct{}{} // wait for the running write
	<-c.writing
	c.streams.seen()
	if err := c.streams.meter.wait(); err != nil {
		return 0, err
	}
	if c.streams.meter.stranger() {
		b = b[:min(len(b), strangersRead)]
	}
	n, err := c.Conn.Read(b)
	c.streams.read(b[:n])
	return n, err
}

func (c *paced) Close() error {
	c.streams.leave()
	return c.Conn.Close()
}
