// SPDX-License-Identifier: Apache-2.0

package mcpserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// world is a Handler, and an API that creates and releases sandboxes.
type world struct {
	*Handler
	url string

	mu    sync.Mutex
	n     int
	live  map[string]string // sandboxes and who created them
	froms []string          // the addresses of calls
}

func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	who := r.Header.Get("Authorization")
	out.Header().Set("Content-Type", "application/json")
	switch id := strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/"); {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/sandboxes":
		w.n++
		made := fmt.Sprintf("sandbox-%d", w.n)
		w.live[made] = who
		_, _ = fmt.Fprintf(out, `{"id":%q,"namespace":"default","env":"python","phase":"RUNNING","clusterId":"east"}`, made)
	case r.Method == http.MethodDelete && w.live[id] == who:
		delete(w.live, id)
		_, _ = fmt.Fprint(out, `{}`)
	default:
		out.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(out, `{"reason":"FORBIDDEN","detail":"not yours"}`)
	}
}

type whoKey struct{}

// newWorld serves sessions to callers whom their Authorization names.
func newWorld(t *testing.T, change func(*HandlerOptions)) *world {
	t.Helper()
	w := &world{live: map[string]string{}}
	api := httptest.NewServer(w)
	t.Cleanup(api.Close)
	o := HandlerOptions{
		Dial: func(ctx context.Context, from string) (net.Conn, error) {
			w.mu.Lock()
			w.froms = append(w.froms, from)
			w.mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, "tcp", api.Listener.Addr().String())
		},
		Caller:      func(ctx context.Context) string { who, _ := ctx.Value(whoKey{}).(string); return who },
		MaxSessions: 3, MaxPerCaller: 2, Session: Options{MaxSandboxes: 2}, Patience: time.Minute, Log: logr.Discard(),
	}
	if change != nil {
		change(&o)
	}
	w.Handler = NewHandler(o)
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		r = r.WithContext(context.WithValue(r.Context(), whoKey{}, r.Header.Get("Authorization")))
		w.Match(r).ServeHTTP(out, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(w.Close)
	w.url = server.URL + Path
	return w
}

// as is a transport with a caller's credentials.
type as string

func (a as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(a))
	return http.DefaultTransport.RoundTrip(r)
}

// send sends a request with a header, unless that is empty, and returns the status of the response.
func send(t *testing.T, who as, method, url, body, header, value string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must.Succeed(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if value != "" {
		r.Header.Set(header, value)
	}
	response, err := who.RoundTrip(r)
	must.Succeed(t, err)
	_ = response.Body.Close()
	return response.StatusCode
}

func (w *world) connect(t *testing.T, who string) (*mcp.ClientSession, error) {
	t.Helper()
	return mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: w.url + "?env=python", HTTPClient: &http.Client{Transport: as(who)}, DisableStandaloneSSE: true,
	}, nil)
}

func create(t *testing.T, s *mcp.ClientSession) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "create", Arguments: map[string]any{}})
	must.Succeed(t, err)
	if r.IsError {
		t.Fatalf("create: %v", r.Content[0].(*mcp.TextContent).Text)
	}
}

func (w *world) wantLive(t *testing.T, n int) {
	t.Helper()
	wait.For(t, 10*time.Second, "the sandboxes", func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		return wait.If(len(w.live) == n, w.live)
	})
}

func TestASessionOverHTTP(t *testing.T) {
	w := newWorld(t, nil)
	s, err := w.connect(t, "red")
	must.Succeed(t, err)
	create(t, s)
	w.mu.Lock()
	if w.live["sandbox-1"] != "Bearer red" {
		t.Errorf("created as %v", w.live)
	}
	w.mu.Unlock()
	// Where the agent reaches a port: by the origin that it called, not by the one that the session calls.
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "port", Arguments: map[string]any{"port": 8000}})
	must.Succeed(t, err)
	want := strings.TrimSuffix(w.url, Path) + "/v1/sandboxes/sandbox-1/ports/8000/"
	if got, _ := r.StructuredContent.(map[string]any); r.IsError || got["url"] != want {
		t.Errorf("the port is at %v, want %s", r.StructuredContent, want)
	}
	must.Succeed(t, s.Close())
	w.wantLive(t, 0)
}

func TestASessionIsItsCallers(t *testing.T) {
	w := newWorld(t, nil)
	s, err := w.connect(t, "red")
	must.Succeed(t, err)
	create(t, s)
	for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodGet} {
		status := send(t, "blue", method, w.url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, sessionHeader, s.ID())
		if status != http.StatusNotFound {
			t.Errorf("%s of another caller's session: %d, want 404", method, status)
		}
	}
	create(t, s) // it goes on
	w.wantLive(t, 2)
	must.Succeed(t, s.Close())
	w.wantLive(t, 0)
}

func TestASessionThatIsLeftEnds(t *testing.T) {
	w := newWorld(t, func(o *HandlerOptions) { o.Patience = time.Second })
	s, err := w.connect(t, "red")
	must.Succeed(t, err)
	create(t, s)
	w.wantLive(t, 1)
	w.wantLive(t, 0) // without any word of the agent
	if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "list", Arguments: map[string]any{}}); err == nil {
		t.Error("the session goes on without its sandboxes")
	}
}

func TestI14SessionsAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	var open []*mcp.ClientSession
	for _, who := range []string{"red", "red", "blue"} {
		s, err := w.connect(t, who)
		must.Succeed(t, err)
		open = append(open, s)
	}
	if _, err := w.connect(t, "blue"); err == nil {
		t.Error("a fourth session was served, of at most three")
	}
	must.Succeed(t, open[2].Close())
	if _, err := w.connect(t, "red"); err == nil {
		t.Error("a third session of one caller was served, of at most two")
	}
	wait.For(t, 10*time.Second, "the end of a session", func(context.Context) error {
		s, err := w.connect(t, "blue")
		if err == nil {
			open[2] = s
		}
		return err
	})
	// What begins no session leaves none.
	for range 8 {
		response, err := (&http.Client{Transport: as("green")}).Post(w.url, "application/json", strings.NewReader(`{`))
		must.Succeed(t, err)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusBadRequest {
			t.Errorf("nonsense: %d", response.StatusCode)
		}
	}
	create(t, open[0])
	w.Close()
	w.wantLive(t, 0)
	if _, err := w.connect(t, "blue"); err == nil {
		t.Error("a session began after the end")
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	for name, tc := range map[string]struct {
		path, body, origin string
		want               int
	}{
		"a page of another origin": {"?env=a", `{}`, "https://elsewhere.example", http.StatusForbidden},
		"an unknown parameter":     {"?environment=a", `{}`, "", http.StatusBadRequest},
		"a large body":             {"", `"` + strings.Repeat("x", maxBody) + `"`, "", http.StatusBadRequest},
	} {
		if status := send(t, "red", http.MethodPost, w.url+tc.path, tc.body, "Origin", tc.origin); status != tc.want {
			t.Errorf("%s: %d, want %d", name, status, tc.want)
		}
	}
}
