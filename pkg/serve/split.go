// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"io"
	"net"
	"sync"
	"time"
)

// preface begins every HTTP/2 connection ("PRI * HTTP/2.0…") and no HTTP/1.1 request.
const preface = "PRI"

// splitter hands the connections of one listener to two servers.
type splitter struct {
	root net.Listener
	grpc *lane
	http *lane
	done chan struct{}
	once sync.Once
}

func newSplitter(root net.Listener) *splitter {
	s := &splitter{root: root, done: make(chan struct{})}
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

// sort reads the first bytes, handshake of TLS included, and hands the connection on with them.
func (s *splitter) sort(conn net.Conn) {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		// A connection that says nothing must not hold up the end.
		select {
		case <-s.done:
			_ = conn.SetReadDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()
	head := make([]byte, len(preface))
	_ = conn.SetReadDeadline(time.Now().Add(headerTimeout))
	if _, err := io.ReadFull(conn, head); err != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	target := s.http
	if string(head) == preface {
		target = s.grpc
	}
	select {
	case target.conns <- &replayed{Conn: conn, head: head}:
	case <-s.done:
		_ = conn.Close()
	}
}

func (s *splitter) close() {
	s.once.Do(func() {
		close(s.done)
		_ = s.root.Close()
	})
}

// lane is the listener of one of the two servers. Closing it closes the whole: neither server goes on alone.
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

// replayed is a connection whose first bytes have been read already.
type replayed struct {
	net.Conn
	head []byte
}

func (c *replayed) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
