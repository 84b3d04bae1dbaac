// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// pipe is a connection to a sandbox that reads a request and responds with a function.
type pipe struct {
	net.Conn
	buffer [MaxMessage]byte
	heard  *atomic.Int64 // bytes of the sandbox
}

func (p *pipe) Recv() ([]byte, error) {
	n, err := p.Read(p.buffer[:])
	p.heard.Add(int64(n))
	return p.buffer[:n], err
}
func (p *pipe) Send(message []byte) error { _, err := p.Write(message); return err }
func (*pipe) CloseSend() error            { return nil }
func (p *pipe) Close(error)               { _ = p.Conn.Close() }
func (*pipe) Cut() <-chan struct{}        { return nil }

type responder struct {
	respond func(io.Writer) error
	heard   atomic.Int64
	under   sync.WaitGroup
	asked   string // the request's header
}

func (s *responder) Open(context.Context, string, *federationv1.ReachCall) (Tunnel, error) {
	here, there := net.Pipe()
	s.under.Go(func() {
		defer func() { _ = there.Close() }()
		buffer := make([]byte, 4<<10)
		for !strings.Contains(s.asked, "\r\n\r\n") {
			n, err := there.Read(buffer)
			if err != nil {
				return
			}
			s.asked += string(buffer[:n])
		}
		_ = s.respond(there)
	})
	return &pipe{Conn: here, heard: &s.heard}, nil
}

// repeat writes a text until a write fails.
func repeat(w io.Writer, text string, pause time.Duration) error {
	for i := 0; ; i++ {
		time.Sleep(pause)
		if _, err := io.WriteString(w, strings.ReplaceAll(text, "#", fmt.Sprint(i))); err != nil {
			return err
		}
	}
}

// I14: a sandbox's endless header held 10 MiB here for each request, without a time limit.
func TestI14AResponsesHeaderIsBounded(t *testing.T) {
	begin := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	body := strings.Repeat("\n", 1<<20)
	for name, c := range map[string]struct {
		begin string
		then  func(io.Writer) error
		code  int
		most  int64 // bytes that are read; 0: any
		why   string
	}{
		"one line": {"HTTP/1.1 200 OK\r\nA: ", func(w io.Writer) error { return repeat(w, strings.Repeat("x", 1000), 0) }, 503, 128 << 10,
			"65536 bytes"},
		"many lines": {"HTTP/1.1 200 OK\r\n", func(w io.Writer) error { return repeat(w, "A#:\r\n", 0) }, 503, 8 << 10, "256 lines"},
		"many beginnings": {"", func(w io.Writer) error { return repeat(w, "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n", 0) }, 503, 16 << 10,
			"256 lines"},
		"a false status": {"HTTP/1.1 103 Early Hints\r\nHTTP/1.1 200: x\r\n\r\n", func(w io.Writer) error { return repeat(w, "A#:\r\n", 0) },
			503, 16 << 10, ""},
		"no header": {"", func(w io.Writer) error { return repeat(w, strings.Repeat("x", 1000), 0) }, 503, 128 << 10, ""},
		"slow": {"HTTP/1.1 200 OK\r\n", func(w io.Writer) error { return repeat(w, "A#: b\r\n", time.Second) }, 503, 1 << 10,
			"within 10s"},
		"stuck": {"HTTP/1.1 200 OK\r\nA: b\r\nC", func(w io.Writer) error { _, err := io.Copy(io.Discard, w.(io.Reader)); return err },
			503, 1 << 10, ""},
		"late": {"", func(w io.Writer) error { time.Sleep(time.Hour); return begin("HTTP/1.1 200 OK\r\n\r\nbody")(w) }, 200, 0,
			"body"},
		"slow body": {"HTTP/1.1 200 OK\r\n\r\n", func(w io.Writer) error { time.Sleep(time.Hour); return begin("body")(w) }, 200, 0,
			"body"},
		"late after hints": {"HTTP/1.1 103 Early Hints\r\n\r\n",
			func(w io.Writer) error { time.Sleep(time.Hour); return begin("HTTP/1.1 200 OK\r\n\r\nbody")(w) }, 200, 0, "body"},
		"large body": {"HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n", begin(body), 200, 0, body},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sandbox := &responder{respond: func(w io.Writer) error {
					if err := begin(c.begin)(w); err != nil {
						return err
					}
					return c.then(w)
				}}
				h := NewHandler(sandbox, logr.Discard())
				defer h.Close()
				r := httptest.NewRequest(http.MethodGet, "/v1/sandboxes/a/ports/80/", nil)
				w := httptest.NewRecorder()
				h.Match(r).ServeHTTP(w, r)
				sandbox.under.Wait()
				if w.Code != c.code || !strings.Contains(w.Body.String(), c.why) || w.Body.Len() > len(c.why)+2<<10 {
					t.Errorf("%d %.200s, want %d with %.200q", w.Code, w.Body, c.code, c.why)
				}
				if heard := sandbox.heard.Load(); c.most > 0 && heard > c.most {
					t.Errorf("%d bytes were read, want %d at most", heard, c.most)
				}
			})
		})
	}
}
