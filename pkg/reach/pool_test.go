// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"bufio"
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

	"github.com/go-logr/logr"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
)

// web is a server at every port of a sandbox.
type web struct {
	server *httptest.Server
	most   int // tunnels at a time; 0: any number

	mu     sync.Mutex
	opened int
	live   map[*tunnel]struct{}
	gone   bool
}

// tunnel is one that its sandbox can end.
type tunnel struct {
	*wire
	end func()
}

func (t *tunnel) Close(err error) {
	t.end()
	t.wire.Close(err)
}

func newWeb(t *testing.T) *web {
	t.Helper()
	w := &web{live: map[*tunnel]struct{}{}}
	w.server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(out, "%s %s %s%s", r.Method, r.Host, r.URL.Path, body)
	}))
	t.Cleanup(w.server.Close)
	return w
}

func (w *web) Open(context.Context, string, *federationv1.ReachCall) (Tunnel, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.gone:
		return nil, problem.New(problem.NotFound, "it has ended")
	case w.most > 0 && len(w.live) >= w.most:
		return nil, problem.New(problem.RateLimited, "%d tunnels", w.most)
	}
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	w.opened++
	t := &tunnel{wire: &wire{conn: conn, cut: make(chan struct{})}}
	t.end = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.live, t)
	}
	w.live[t] = struct{}{}
	return t, nil
}

// release ends the sandbox, as a worker does: its tunnels end before it is gone.
func (w *web) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	for t := range w.live {
		_ = t.conn.Close()
	}
}

func (w *web) wantOpened(t *testing.T, n int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.opened != n {
		t.Errorf("%d tunnels were opened, want %d", w.opened, n)
	}
}

type whoKey struct{}

// ask makes a request of a caller, and returns its status and its text.
func ask(t *testing.T, base, who, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	must.Succeed(t, err)
	r.Header.Set("X-Who", who)
	response, err := http.DefaultClient.Do(r)
	must.Succeed(t, err)
	defer response.Body.Close()
	return response.StatusCode, string(must.Read(t, response.Body))
}

func serveWeb(t *testing.T, w *web) string {
	t.Helper()
	h := NewHandler(w, logr.Discard())
	h.Caller = func(ctx context.Context) string { who, _ := ctx.Value(whoKey{}).(string); return who }
	t.Cleanup(h.Close)
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		h.Match(r).ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), whoKey{}, r.Header.Get("X-Who"))))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1/sandboxes/a-east/ports/"
}

func TestATunnelServesOneCaller(t *testing.T) {
	w := newWeb(t)
	base := serveWeb(t, w)
	for i := range 10 {
		method, body := http.MethodGet, ""
		if i%2 == 1 {
			method, body = http.MethodPost, " with a body"
		}
		if status, text := ask(t, base, "red", method, "8000/at", body); status != http.StatusOK ||
			text != method+" localhost:8000 /at"+body {
			t.Fatalf("%d %s", status, text)
		}
	}
	w.wantOpened(t, 1)
	ask(t, base, "blue", http.MethodGet, "8000/at", "")
	w.wantOpened(t, 2)
	ask(t, base, "red", http.MethodGet, "8001/at", "")
	w.wantOpened(t, 3)
	ask(t, base, "red", http.MethodGet, "8000/at", "")
	w.wantOpened(t, 3)
	for range 3 { // who they are is not known
		ask(t, base, "", http.MethodGet, "8000/at", "")
	}
	w.wantOpened(t, 6)
}

// slow is a port whose first tunnel is opened late.
type slow struct {
	opens  chan struct{} // closed: the first tunnel is opened
	opened atomic.Int32
}

func (s *slow) Open(context.Context, string, *federationv1.ReachCall) (Tunnel, error) {
	if s.opened.Add(1) == 1 {
		<-s.opens
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
			_, _ = io.WriteString(far, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	}()
	return &wire{conn: near, cut: make(chan struct{})}, nil
}

// A tunnel that is opened for a request that was cancelled meanwhile serves no other caller whose name is not known. They may be callers
// with other rights, as those of RoleBindings at a hub with --auth=kubernetes.
func TestATunnelOfACancelledRequestServesNoOtherCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port := &slow{opens: make(chan struct{})}
		h := NewHandler(port, logr.Discard())
		defer h.Close()
		visit := func(ctx context.Context) int {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/sandboxes/a-east/ports/8000/at", nil)
			w := httptest.NewRecorder()
			h.Match(r).ServeHTTP(w, r)
			return w.Code
		}
		red, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() { defer close(left); visit(red) }()
		synctest.Wait()
		leave()
		<-left
		close(port.opens)
		synctest.Wait() // the tunnel is open
		if code := visit(t.Context()); code != http.StatusNoContent || port.opened.Load() != 2 {
			t.Errorf("another caller's request: %d, by %d tunnels in all, want one of its own", code, port.opened.Load())
		}
	})
}

func TestIdleTunnelsGiveWay(t *testing.T) {
	w := newWeb(t)
	w.most = 1
	base := serveWeb(t, w)
	for _, who := range []string{"red", "blue", "red"} {
		if status, text := ask(t, base, who, http.MethodGet, "8000/at", ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", who, status, text)
		}
	}
	w.wantOpened(t, 3)
}

func TestI13AReusedTunnelEndsWithItsSandbox(t *testing.T) {
	w := newWeb(t)
	base := serveWeb(t, w)
	if status, text := ask(t, base, "red", http.MethodGet, "8000/at", ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	w.release()
	if status, text := ask(t, base, "red", http.MethodGet, "8000/at", ""); status != http.StatusNotFound {
		t.Errorf("after the release: %d %s, want 404", status, text)
	}
}
