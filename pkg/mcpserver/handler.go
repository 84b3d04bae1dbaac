// SPDX-License-Identifier: Apache-2.0

package mcpserver

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"navix.sh/atoll/pkg/client"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/tally"
)

const (
	// Path is where sessions are served over HTTP.
	Path = "/mcp"
	// Kind is the kind of these requests in the table of permissions.
	Kind = "mcp"

	sessionHeader = "Mcp-Session-Id"
	maxRequests   = 2 * maxCalls // of a session at a time: calls of tools, streams and messages
	closeTimeout  = 5 * time.Second
)

// HandlerOptions configure a Handler. All but Log are required.
type HandlerOptions struct {
	Dial Dial
	// Caller returns the name of a request's caller. A session belongs to its caller.
	Caller func(context.Context) string
	// MaxSessions bounds the sessions of all callers together, and MaxPerCaller those of each caller.
	MaxSessions, MaxPerCaller int
	// Session are the options of each session, except for its Client and its Env, which a request names.
	Session Options
	// Patience is how long a session lasts while its agent has no request in progress.
	Patience time.Duration
	Log      logr.Logger
}

// Handler serves sessions over HTTP, as the protocol's streamable transport. The nil Handler serves nothing.
type Handler struct {
	opts    HandlerOptions
	sdk     http.Handler
	schemas *mcp.SchemaCache

	mu       sync.Mutex
	sessions map[string]*remote
	callers  *tally.Tally[string]
	count    int // of sessions, including those that are releasing their sandboxes
	over     bool
	leaving  sync.WaitGroup
}

// NewHandler returns a Handler.
func NewHandler(o HandlerOptions) *Handler {
	h := &Handler{opts: o, schemas: mcp.NewSchemaCache(), sessions: map[string]*remote{}, callers: tally.New[string](o.MaxPerCaller)}
	h.sdk = mcp.NewStreamableHTTPHandler(
		func(r *http.Request) *mcp.Server { return remoteOf(r.Context()).server },
		&mcp.StreamableHTTPOptions{DisableLocalhostProtection: true}) // names and origins were already checked
	return h
}

// Match returns the handler for a request, or nil if the request is not for this handler.
func (h *Handler) Match(r *http.Request) http.Handler {
	if h == nil || r.URL.EscapedPath() != Path {
		return nil
	}
	return request{h}
}

// request is the handler of one request.
type request struct{ *Handler }

// Kind returns the kind that determines the permission for the request.
func (request) Kind() string { return Kind }

// ServeHTTP implements http.Handler.
func (q request) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := q.serve(w, r); err != nil {
		problem.FromError(err).Write(w)
	}
}

// serve returns an error only if it has sent no response.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	if err := serve.SameOrigin(r); err != nil {
		return err
	}
	if err := takeBody(w, r); err != nil {
		return err
	}
	id := r.Header.Get(sessionHeader)
	if id == "" && r.Method == http.MethodPost {
		return h.begin(w, r)
	}
	var s *remote
	if id != "" {
		h.mu.Lock()
		s = h.sessions[id]
		h.mu.Unlock()
		if s == nil || s.caller != h.opts.Caller(r.Context()) {
			return problem.New(problem.NotFound, "this server has no such session of yours; begin one")
		}
		if !s.enter(r) {
			return problem.New(problem.RateLimited, "the session has %d requests under way already", maxRequests).WithRetryAfter(time.Second)
		}
		defer s.exit()
		if r.Method == http.MethodDelete {
			s.end() // do not wait for a running call
		}
	}
	h.sdk.ServeHTTP(w, r)
	return nil
}

// begin serves the first request of a session. A request that does not initialize a session leaves none behind.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request) error {
	env, err := envOf(r)
	if err != nil {
		return err
	}
	s, err := h.open(r, env)
	if err != nil {
		return err
	}
	s.enter(r)
	defer s.exit()
	h.sdk.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), remoteKey{}, s)))
	if all := slices.Collect(s.server.Sessions()); len(all) > 0 && all[0].InitializeParams() != nil {
		s.attach(all[0])
		go func() {
			_ = all[0].Wait()
			h.drop(s)
		}()
		return nil
	}
	h.drop(s)
	return nil
}

// envOf returns the Env from which a session creates sandboxes.
func envOf(r *http.Request) (string, error) {
	query := r.URL.Query()
	for name := range query {
		if name != "env" {
			return "", problem.InvalidField(name, strings.Join(query[name], ","), "env alone, as NAME or NAMESPACE/NAME")
		}
	}
	env := query.Get("env")
	if len(env) > maxEnv || len(query["env"]) > 1 {
		return "", problem.InvalidField("env", clip.Text(env, 64), "one NAME or NAMESPACE/NAME")
	}
	return env, nil
}

const maxEnv = 512

// open creates a session. It counts until its sandboxes are released.
func (h *Handler) open(r *http.Request, env string) (*remote, error) {
	caller := h.opts.Caller(r.Context())
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over:
		return nil, problem.New(problem.Unavailable, "the server is going away").WithRetryAfter(time.Second)
	case h.count >= h.opts.MaxSessions:
		return nil, problem.New(problem.RateLimited, "the server has %d sessions, which is the most", h.opts.MaxSessions).
			WithRetryAfter(10 * time.Second)
	case !h.callers.Enter(caller):
		return nil, problem.New(problem.RateLimited, "this caller has %d sessions, which is the most; end one", h.opts.MaxPerCaller).
			WithRetryAfter(10 * time.Second)
	}
	s := &remote{id: rand.Text(), caller: caller, patience: h.opts.Patience}
	s.transport = newTransport(h.opts.Dial, s)
	o := h.opts.Session
	o.Env, o.Origin = env, originOf(r)
	var err error
	if o.Client, err = client.New(client.Options{
		Server: insideURL, TokenSource: s.currentToken, HTTP: &http.Client{Transport: s.transport},
	}); err != nil {
		h.callers.Leave(caller)
		return nil, err
	}
	s.Session = newSession(o, mcp.ServerOptions{SchemaCache: h.schemas, GetSessionID: func() string { return s.id }})
	h.sessions[s.id] = s
	h.count++
	h.leaving.Add(1)
	return s, nil
}

// originOf returns the origin that the caller used, according to a proxy before this server or to the connection. Its host was already
// checked (--allowed-hosts). It is used only to tell the same caller the URLs of ports.
func originOf(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// drop ends a session, and releases its sandboxes.
func (h *Handler) drop(s *remote) {
	defer h.leaving.Done()
	h.mu.Lock()
	delete(h.sessions, s.id)
	h.mu.Unlock()
	s.detach()
	if err := s.leave(context.Background()); err != nil {
		h.opts.Log.Info("A session's sandboxes were not released; their idle timeout ends them", "caller", s.caller, "error", err.Error())
	}
	s.transport.close()
	h.mu.Lock()
	h.count--
	h.mu.Unlock()
	h.callers.Leave(s.caller)
}

// Close ends all sessions and refuses new ones. It waits a moment for the release of their sandboxes.
func (h *Handler) Close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	h.over = true
	var all []*remote
	for _, s := range h.sessions {
		all = append(all, s)
	}
	h.mu.Unlock()
	for _, s := range all {
		go s.close()
	}
	released := make(chan struct{})
	go func() {
		h.leaving.Wait()
		close(released)
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-released:
	case <-timer.C:
		h.opts.Log.Info("Sessions have sandboxes that are not released yet; their idle timeout ends them", "after", closeTimeout.String())
	}
}
