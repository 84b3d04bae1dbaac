// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/encoding/prototext"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// tunnel is the hub's end of a tunnel whose other end is a TCP connection.
type tunnel struct {
	net.Conn
	buffer [reach.MaxMessage]byte
	once   sync.Once
	over   chan struct{}
}

func (t *tunnel) Recv() ([]byte, error) {
	n, err := t.Read(t.buffer[:])
	return t.buffer[:n], err
}

func (t *tunnel) Send(message []byte) error {
	_, err := t.Write(message)
	return err
}
func (t *tunnel) CloseSend() error     { return t.Conn.(*net.TCPConn).CloseWrite() }
func (t *tunnel) Cut() <-chan struct{} { return t.over }
func (t *tunnel) Close(error) {
	t.once.Do(func() {
		_ = t.Conn.Close()
		close(t.over)
	})
}

// world is the handler, with a worker behind it that responds to all dispatches.
type world struct {
	t       *testing.T
	handler *Handler
	worker  *httptest.Server
	who     *access.Identity
	scope   access.Scope
	hub     *httptest.Server
	lines   *sink

	mu      sync.Mutex
	calls   []string // to workers, as text
	holders []reach.Holder
	tunnels []*tunnel
}

func (w *world) Dispatch(_ context.Context, cluster string, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, cluster+" "+prototext.Format(d))
	return &federationv1.Answer{Disposition: federationv1.Disposition_DONE}, nil
}

func (w *world) OpenTunnel(
	ctx context.Context, _ string, holder reach.Holder, tell func(ctx context.Context, token string) error,
) (reach.Tunnel, error) {
	if err := tell(ctx, "t0ken"); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.worker.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders = append(w.holders, holder)
	w.tunnels = append(w.tunnels, &tunnel{Conn: conn, over: make(chan struct{})})
	return w.tunnels[len(w.tunnels)-1], nil
}

// sink keeps lines of audit.
type sink struct {
	mu     sync.Mutex
	events []audit.Event
}

func (*sink) Name() string { return "memory" }
func (*sink) Close() error { return nil }
func (s *sink) Write(lines []audit.Line) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range lines {
		s.events = append(s.events, line.Event)
	}
	return nil
}

func newWorld(t *testing.T, worker http.HandlerFunc) *world {
	t.Helper()
	w := &world{
		t: t, worker: httptest.NewServer(worker), lines: &sink{}, scope: access.Scope{AllNamespaces: true, AllTeams: true, Whole: true},
		who: &access.Identity{Kind: access.KindOIDC, Name: "alice", User: "alice", Groups: []string{"devs"}, Team: "red"},
	}
	t.Cleanup(w.worker.Close)
	metrics, err := reach.NewMetrics(nil, "test")
	must.Succeed(t, err)
	log := audit.New(audit.Options{Sinks: []audit.Sink{w.lines}, Clock: clock.RealClock{}, Log: logr.Discard()})
	t.Cleanup(func() { must.Succeed(t, log.Close()) })
	w.handler = New(Options{Tunnels: w, Calls: w, Metrics: metrics, Audit: &audit.Calls{
		Log: log, Who: func(ctx context.Context) audit.Who { return audit.As(principal.From(ctx).Identity) },
		From: func(context.Context) (audit.From, string) { return audit.From{}, "" },
	}})
	w.hub = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		handler := w.handler.Match(r, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				p := principal.Of(w.who, access.Proxy, access.Grant{Scopes: []access.Scope{w.scope}})
				next.ServeHTTP(out, r.WithContext(principal.With(r.Context(), p)))
			})
		})
		if handler == nil {
			http.NotFound(out, r)
			return
		}
		handler.ServeHTTP(out, r)
	}))
	t.Cleanup(w.hub.Close)
	t.Cleanup(w.handler.Close)
	return w
}

// reply is a response. Its body is closed with the test.
type reply struct {
	Status     string
	StatusCode int
	Header     http.Header
	Body       io.ReadCloser
}

// ask makes a request below the proxy's path.
func (w *world) ask(method, path string, body io.Reader, header http.Header) reply {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.hub.URL+"/v1/clusters/"+path, body)
	must.Succeed(w.t, err)
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	must.Succeed(w.t, err)
	w.t.Cleanup(func() { _ = response.Body.Close() })
	return reply{response.Status, response.StatusCode, response.Header, response.Body}
}

func TestNamesOf(t *testing.T) {
	for name, c := range map[string]struct {
		who    *access.Identity
		user   string
		groups []string
	}{
		"a user":      {&access.Identity{User: "alice", Groups: []string{"devs"}, Team: "red"}, "user:alice", []string{"group:devs", "team:red"}},
		"a key":       {&access.Identity{Key: "alice", Team: "red"}, "key:alice", []string{"team:red"}},
		"a key's own": {&access.Identity{Key: "ci", TenantUser: "ann", User: "ann"}, "key:ci", nil},
		"an account":  {&access.Identity{User: "system:serviceaccount:n:a"}, "user:system:serviceaccount:n:a", nil},
		"no name":     {&access.Identity{Groups: []string{"devs"}}, "", nil},
		"no identity": {nil, "", nil},
	} {
		user, groups, err := namesOf(c.who)
		if user != c.user || !slices.Equal(groups, c.groups) || (err == nil) != (c.user != "") {
			t.Errorf("%s: %q, %q, %v", name, user, groups, err)
		}
	}
}

// The worker gets the caller's name and request, and nothing by which the hub knows the caller.
func TestNoCredentialsCross(t *testing.T) {
	var got *http.Request
	w := newWorld(t, func(out http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = io.Copy(out, r.Body)
	})
	sent := make([]byte, 3<<20)
	_, _ = rand.Read(sent)
	response := w.ask(http.MethodPost, "east/proxy/api/v1/x%2Fy/z?command=a%20b&command=c", bytes.NewReader(sent), http.Header{
		"Authorization": {"Bearer secret"}, "Cookie": {"session=secret"}, "Proxy-Authorization": {"secret"}, "Accept": {"application/json"},
	})
	if body := must.Read(t, response.Body); response.StatusCode != http.StatusOK || !bytes.Equal(body, sent) {
		t.Errorf("%s, and %d bytes of %d came back", response.Status, len(body), len(sent))
	}
	if got.RequestURI != "/api/v1/x%2Fy/z?command=a%20b&command=c" || got.Method != http.MethodPost || got.Header.Get("Accept") == "" {
		t.Errorf("the worker got %s %s %v", got.Method, got.RequestURI, got.Header)
	}
	header, err := json.Marshal(got.Header)
	must.Succeed(t, err)
	if all := string(header) + strings.Join(w.calls, ""); strings.Contains(all, "secret") {
		t.Errorf("credentials crossed the link: %s", all)
	}
	call := strings.Join(w.calls, "")
	for _, want := range []string{"east ", `"user:alice"`, `"group:devs"`, `"team:red"`, `"t0ken"`} {
		if !strings.Contains(call, want) {
			t.Errorf("the call lacks %s: %s", want, call)
		}
	}
	if len(w.holders) != 1 || w.holders[0] != (reach.Holder{Account: `team "red"`}) {
		t.Errorf("the tunnel counts against %+v", w.holders)
	}
}

// The worker gets a query as its caller wrote it, also one that Go does not parse: an application behind the API server may read it.
func TestTheWorkerGetsTheQueryAsItWasWritten(t *testing.T) {
	got := make(chan string, 1)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.RequestURI })
	for _, query := range []string{"", "?b=2&a=1", "?a=1;b=2", "?b=2&a=1;c", "?share=100%", "?a=%zz&b"} {
		w.ask(http.MethodGet, "east/proxy/api/v1/namespaces/n/services/s/proxy/"+query, nil, nil)
		if asked, want := <-got, "/api/v1/namespaces/n/services/s/proxy/"+query; asked != want {
			t.Errorf("the worker is asked for %q, want %q", asked, want)
		}
	}
}

// What is refused reaches no worker, and is told as Kubernetes' clients read it.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		header http.Header
		change func(*world)
		code   int
		says   string
	}{
		"impersonation":     {"east/proxy/api/v1", http.Header{"Impersonate-User": {"bob"}}, nil, 403, "no user but the caller"},
		"in small letters":  {"east/proxy/api/v1", http.Header{"impersonate-group": {"system:masters"}}, nil, 403, "no user but the caller"},
		"hidden":            {"east/proxy/api/v1", http.Header{"Connection": {"Impersonate-Uid"}, "Impersonate-Uid": {"1"}}, nil, 403, "no user"},
		"a token otherwise": {"east/proxy/api", http.Header{"Sec-Websocket-Protocol": {"a, " + bearerProtocol + "eA"}}, nil, 400, "belongs in"},
		"no cluster's name": {"East%2F..%2Fwest/proxy/api/v1", nil, nil, 400, "cluster"},
		"another origin":    {"east/proxy/api/v1", http.Header{"Origin": {"https://evil.example"}}, nil, 403, "evil.example"},
		"no name":           {"east/proxy/api/v1", nil, func(w *world) { w.who = &access.Identity{} }, 403, "no name"},
		"another cluster": {"west/proxy/api/v1", nil, func(w *world) { w.scope.Clusters = []string{"east"} }, 403,
			"cluster west is not open to you"},
		"of discovery": {"west/proxy/api", nil, func(w *world) { w.scope.Clusters = []string{"east"} }, 403, "cluster west is not open to you"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("the worker was asked") })
			if c.change != nil {
				c.change(w)
			}
			response := w.ask(http.MethodGet, c.path, nil, c.header)
			body := string(must.Read(t, response.Body))
			if response.StatusCode != c.code || !strings.Contains(body, c.says) || len(w.calls) > 0 {
				t.Errorf("%s %s, and %d calls", response.Status, body, len(w.calls))
			}
			status := struct {
				Kind string
				Code int
			}{}
			if kind := response.Header.Get("Content-Type"); strings.HasSuffix(c.path, "/api") != strings.HasPrefix(kind, "text/plain") ||
				strings.HasPrefix(kind, "application/json") && (json.Unmarshal([]byte(body), &status) != nil || status.Code != c.code) {
				t.Errorf("%s: %s", kind, body)
			}
		})
	}
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("the worker was asked") })
	for _, path := range []string{"east", "east/", "east/proxyx", "east/other/proxy/", ""} {
		if r := httptest.NewRequest(http.MethodGet, "/v1/clusters/"+path, nil); w.handler.Match(r, nil) != nil {
			t.Errorf("%q is taken for the proxy's", path)
		}
	}
	var off *Handler
	if off.Match(httptest.NewRequest(http.MethodGet, "/v1/clusters/east/proxy/api", nil), nil) != nil {
		t.Error("a hub without the proxy has it")
	}
	off.Close()
}

// I15: nothing that a cluster sends is for the whole host.
func TestI15AClusterSpeaksForItselfAlone(t *testing.T) {
	for to, want := range map[string]string{
		"/api/v1/":              "/v1/clusters/east/proxy/api/v1/",
		"//evil.example/":       "",
		"https://evil.example/": "",
		`/\evil.example/`:       "",
		"/../../../keys":        "",
		"/%2e%2e/%2e%2e/keys":   "",
		"/.%2E/%2e./keys":       "",
		"/.\t./.\t./keys":       "",
		" /../../keys":          "", // two headers, the first one empty
	} {
		w := newWorld(t, func(out http.ResponseWriter, _ *http.Request) {
			for _, name := range originWide {
				out.Header().Set(name, "x")
			}
			out.Header().Set("Warning", `299 - "deprecated"`)
			out.Header()["Location"] = strings.Split(to, " ")
			out.WriteHeader(http.StatusFound)
		})
		header := w.ask(http.MethodGet, "east/proxy/x", nil, nil).Header
		for _, name := range originWide {
			if header.Get(name) != "" {
				t.Errorf("the header %s passes", name)
			}
		}
		location := strings.Join(header.Values("Location"), " ")
		if location != want || header.Get("Content-Security-Policy") != "sandbox" || header.Get("Warning") == "" {
			t.Errorf("%s: %v, want the location %q", to, header, want)
		}
	}
}

// The problem of an application behind an API server passes as it is, also where it claims to be the hub's; because it may be endless.
func TestAnApplicationsProblemPasses(t *testing.T) {
	const theirs = `{"type":"theirs"}`
	w := newWorld(t, func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", problem.ContentType)
		out.Header().Set(problem.Header, string(problem.NotFound))
		out.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(out, theirs)
	})
	response := w.ask(http.MethodGet, "east/proxy/api/v1/namespaces/n/services/s/proxy/", nil, nil)
	body := string(must.Read(t, response.Body))
	if response.StatusCode != http.StatusConflict || body != theirs || response.Header.Get("Content-Type") != problem.ContentType ||
		response.Header.Get(problem.Header) != "" {
		t.Errorf("%s %v %s", response.Status, response.Header, body)
	}
}

// A request that ends by its caller, or because the hub does, ends its tunnel.
func TestATunnelEndsWithItsRequest(t *testing.T) {
	for name, end := range map[string]func(*world, reply){
		"its caller":  func(_ *world, r reply) { _ = r.Body.Close() },
		"the hub":     func(w *world, _ reply) { w.handler.Close() },
		"the cluster": func(w *world, _ reply) { w.worker.CloseClientConnections() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(out http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(out, "event\n")
				_ = http.NewResponseController(out).Flush()
				<-r.Context().Done()
			})
			response := w.ask(http.MethodGet, "east/proxy/api/v1/pods?watch=1", nil, nil)
			first := make([]byte, len("event\n"))
			_, err := io.ReadFull(response.Body, first)
			must.Succeed(t, err)
			end(w, response)
			select {
			case <-w.tunnels[0].Cut():
			case <-time.After(10 * time.Second):
				t.Fatal("the tunnel goes on")
			}
			if _, err := io.ReadAll(response.Body); err == nil && name != "its caller" {
				t.Error("the response ends as if it were complete")
			}
		})
	}
}

func TestAudit(t *testing.T) {
	w := newWorld(t, func(out http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/forbidden":
			out.WriteHeader(http.StatusForbidden)
		case "/exec":
			out.Header().Set("Connection", "Upgrade")
			out.Header().Set("Upgrade", "SPDY/3.1")
			out.WriteHeader(http.StatusSwitchingProtocols)
			if conn, _, err := http.NewResponseController(out).Hijack(); err == nil {
				_, _ = io.WriteString(conn, "done")
				_ = conn.Close()
			}
		case "/broken":
			panic(http.ErrAbortHandler)
		}
	})
	w.ask(http.MethodGet, "east/proxy/read", nil, nil)
	w.ask(http.MethodPost, "east/proxy/write?secret=canary", strings.NewReader("canary"), nil)
	w.ask(http.MethodPost, "east/proxy/broken", nil, nil)
	w.ask(http.MethodGet, "east/proxy/api/v1/services/x/proxy/y", nil, nil)
	w.ask(http.MethodGet, "east/proxy/api/v1/services/x/%70roxy/y", nil, nil)
	w.ask(http.MethodGet, "east/proxy/api/v1/services/x%2Fproxy%2Fy", nil, nil)
	w.ask(http.MethodDelete, "east/proxy/forbidden", nil, nil)
	w.ask(http.MethodPut, "East/proxy/x", nil, nil)
	exec := w.ask(http.MethodGet, "east/proxy/exec?command=canary", nil, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}})
	if body := must.Read(t, exec.Body); string(body) != "done" {
		t.Errorf("the command printed %q", body)
	}
	_ = exec.Body.Close()
	wait.For(t, 10*time.Second, "the end of each request", func(context.Context) error {
		w.lines.mu.Lock()
		defer w.lines.mu.Unlock()
		return wait.If(len(w.lines.events) == 9, w.lines.events)
	})
	must.Succeed(t, w.handler.opts.Audit.Log.Close())
	var got []string
	for _, e := range w.lines.events {
		text, err := json.Marshal(e)
		must.Succeed(t, err)
		if strings.Contains(string(text), "canary") || e.Object.Resource != "clusters/proxy" || e.Who.Name != "alice" {
			t.Errorf("the line %s", text)
		}
		got = append(got, strings.Join([]string{string(e.Stage), e.Conversation.Method, e.Conversation.Path, string(e.Outcome)}, " "))
	}
	slices.Sort(got)
	want := []string{
		"begin GET /exec ok", "done DELETE /forbidden refused", "done GET /api/v1/services/x%2Fproxy%2Fy ok",
		"done GET /api/v1/services/x/%70roxy/y ok", "done GET /api/v1/services/x/proxy/y ok", "done POST /broken failed",
		"done POST /write ok", "done PUT /x refused", "end GET /exec ok",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the lines are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

var errFull = errors.New("no space left on device")

// broken is a sink that keeps nothing.
type broken struct{ sink }

func (*broken) Write([]audit.Line) error { return errFull }

// Where the audit is strict, a change that cannot be recorded is not made.
func TestStrictAudit(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	log := audit.New(audit.Options{Sinks: []audit.Sink{&broken{}}, Strict: true, Clock: clock.RealClock{}, Log: logr.Discard()})
	defer log.Close()
	w.handler.opts.Audit.Log = log
	if response := w.ask(http.MethodPost, "east/proxy/x", nil, nil); response.StatusCode != http.StatusServiceUnavailable || len(w.calls) > 0 {
		t.Errorf("a change: %s, and %d calls", response.Status, len(w.calls))
	}
	if response := w.ask(http.MethodGet, "east/proxy/x", nil, nil); response.StatusCode != http.StatusOK {
		t.Errorf("a read: %s", response.Status)
	}
}
