// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"navix.sh/atoll/api/envd"
	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/serve"
)

const (
	prefix = "/v1/sandboxes/"
	// openTimeout bounds how long a caller waits until a conversation begins.
	openTimeout = 20 * time.Second
)

// ErrGoingAway ends conversations when the server shuts down.
var ErrGoingAway = problem.New(problem.Unavailable, "the server is going away").WithRetryAfter(time.Second)

// Handler serves the paths logs, exec, ports, files and processes of sandboxes.
type Handler struct {
	// Domain gives each port a host of its own, PORT-ID.DOMAIN. Empty: only paths are served.
	Domain string
	// Tokens returns the tokens of sandboxes' daemons. Nil: files and processes are not served.
	Tokens Tokens
	// Caller returns a name for the caller of a request and for its permissions. Two requests with the same name may use the same tunnel. If
	// the name is empty, no other request may use the tunnel. Nil: the name of every request is empty.
	Caller func(context.Context) string

	opener    Opener
	log       logr.Logger
	ctx       context.Context // of all conversations
	end       context.CancelFunc
	transport pooled
	asking    pooled // of daemons
	proxy     http.Handler
}

// NewHandler returns a handler for the sandboxes that the opener reaches.
func NewHandler(opener Opener, log logr.Logger) *Handler {
	h := &Handler{opener: opener, log: log}
	h.ctx, h.end = context.WithCancel(context.Background())
	h.transport, h.asking = h.newTransport(0), h.newTransport(openTimeout)
	h.proxy = h.newProxy()
	return h
}

// Close ends every conversation, and refuses new ones. Running handlers return soon.
func (h *Handler) Close() {
	h.end()
	h.closeIdle()
}

func (h *Handler) caller(ctx context.Context) string {
	if h.Caller == nil {
		return ""
	}
	return h.Caller(ctx)
}

// target is the parsed path.
type target struct {
	id   string
	what string // logs, exec, ports, files or processes
	verb string // of files and processes: the part after a colon
	pid  string // of a process
	port string
	base string // of a port: the path of its root, without the last slash; empty if the port has its own host
	rest string // of a port: the rest of the path, as it was received
}

// kind returns the kind of a conversation with the target. A conversation with the daemon's port is processes, because callers of that port
// can run commands and access files.
func (t target) kind() string {
	if port, err := strconv.ParseUint(t.port, 10, 16); err == nil && port == envd.Port {
		return "processes"
	}
	return t.what
}

// parse parses a path as the caller sent it. It does not clean the part for the port.
func parse(escaped string) (target, bool) {
	below, ok := strings.CutPrefix(escaped, prefix)
	if !ok {
		return target{}, false
	}
	id, what, ok := strings.Cut(below, "/")
	if !ok {
		return target{}, false
	}
	id, err := url.PathUnescape(id)
	if err != nil {
		return target{}, false
	}
	if what == "logs" || what == "exec" {
		return target{id: id, what: what}, true
	}
	if t, ok := parseInside(what); ok {
		t.id = id
		return t, true
	}
	port, ok := strings.CutPrefix(what, "ports/")
	if !ok {
		return target{}, false
	}
	port, rest, slash := strings.Cut(port, "/")
	t := target{id: id, what: "ports", port: port, base: strings.TrimSuffix(escaped, rest)}
	if slash {
		t.base, t.rest = strings.TrimSuffix(t.base, "/"), "/"+rest
	}
	return t, true
}

// parseInside parses a path that the sandbox's daemon serves, such as files:list.
func parseInside(path string) (t target, ok bool) {
	path, t.verb, _ = strings.Cut(path, ":")
	t.what, t.pid, ok = strings.Cut(path, "/")
	_, served := operations[t.what+":"+t.verb]
	return t, served && ok == (t.verb == "signal")
}

// Match returns the handler for a request, or nil if the request is not for this handler.
func (h *Handler) Match(r *http.Request) http.Handler {
	t, ok := h.find(r)
	if !ok {
		return nil
	}
	return conversation{h, t}
}

// conversation is the handler of one request.
type conversation struct {
	*Handler
	target target
}

// Kind returns the kind of the conversation, which determines the permission its caller needs: exec, logs, ports, files or processes.
func (c conversation) Kind() string { return c.target.kind() }

// Sandbox returns the id of the sandbox, as the caller wrote it.
func (c conversation) Sandbox() string { return c.target.id }

// ServeHTTP implements http.Handler.
func (c conversation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := c.serve(w, r, c.target); err != nil {
		problem.FromError(err).Write(w)
	}
}

// find parses a request's target. The host of a port serves only that port, because its pages share the origin.
func (h *Handler) find(r *http.Request) (target, bool) {
	if port, id, ok := serve.SandboxHost(r.Host, h.Domain); ok {
		return target{id: id, what: "ports", port: port, rest: cmp.Or(r.URL.EscapedPath(), "/")}, true
	}
	return parse(r.URL.EscapedPath())
}

// serve returns an error only if it has sent no response.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, t target) error {
	if err := permit(r, t); err != nil {
		return err
	}
	if t.what == "files" || t.what == "processes" {
		return h.daemon(w, r, t)
	}
	if t.what != "ports" && r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		problem.New(problem.Invalid, "%s is not a method of %s, want GET", r.Method, t.what).WriteStatus(w, http.StatusMethodNotAllowed)
		return nil
	}
	switch t.what {
	case "logs":
		return h.logs(w, r, t)
	case "exec":
		return h.exec(w, r, t)
	default:
		return h.port(w, r, t)
	}
}

// permit stops pages of other origins from using a caller's browser: a server that is protected only by loopback requires no credentials.
// It permits resources that a page loads from a port but cannot read, because a sandbox's own pages have an opaque origin (see confine).
func permit(r *http.Request, t target) error {
	if t.what == "ports" && serve.Safe(r.Method) && r.Header.Get("Origin") == "" && r.Header.Get("Upgrade") == "" {
		return nil
	}
	return serve.SameOrigin(r)
}

// open opens a conversation. The conversation ends with the handler, or when its request is cancelled with a reason.
func (h *Handler) open(request context.Context, id string, what *federationv1.ReachCall) (Tunnel, error) {
	switch {
	case h.ctx.Err() != nil:
		return nil, ErrGoingAway
	case h.opener == nil:
		return nil, problem.New(problem.Unimplemented, "sandboxes cannot be reached here")
	}
	ctx, cancel := context.WithTimeout(request, openTimeout)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	tunnel, err := h.opener.Open(ctx, id, what)
	switch {
	case err != nil && h.ctx.Err() != nil:
		return nil, ErrGoingAway
	case errors.Is(err, context.DeadlineExceeded):
		return nil, problem.New(problem.Deadline, "sandbox %s was not reached within %s", id, openTimeout)
	case err != nil:
		return nil, err
	}
	t := &ending{Tunnel: tunnel}
	t.closing = context.AfterFunc(h.ctx, func() { tunnel.Close(ErrGoingAway) })
	t.expelled = context.AfterFunc(request, func() {
		// The conversation itself notices a caller that disconnects.
		if reason := (*problem.Error)(nil); errors.As(context.Cause(request), &reason) {
			tunnel.Close(reason)
		}
	})
	return t, nil
}

// ending is a tunnel that ends with its handler or its request.
type ending struct {
	Tunnel
	closing, expelled func() bool
}

func (e *ending) Close(reason error) {
	e.closing()
	e.expelled()
	e.Tunnel.Close(reason)
}

// query reads parameters and collects all their faults.
type query struct {
	values url.Values
	faults []problem.Field
}

func (q *query) flag(name string) bool {
	text := q.values.Get(name)
	if text == "" {
		return q.values.Has(name)
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		q.fault(name, text, "true or false")
	}
	return value
}

func (q *query) fault(field, value, valid string) {
	q.faults = append(q.faults, problem.Field{Field: field, Value: value, Valid: valid})
}

// known reports a fault for parameters that have no effect.
func (q *query) known(names string) error {
	for name, values := range q.values {
		if !strings.Contains(" "+names+" ", " "+name+" ") {
			valid := "one of: " + strings.ReplaceAll(names, " ", ", ")
			if near := problem.Nearest(name, strings.Fields(names)); near != "" {
				valid = near + "; there are: " + strings.ReplaceAll(names, " ", ", ")
			}
			q.fault(name, strings.Join(values, ","), valid)
		}
	}
	if len(q.faults) > 0 {
		return problem.InvalidFields(q.faults...)
	}
	return nil
}
