// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/validate"
)

const (
	prefix = "/v1/clusters/"
	// kind is the kind of conversation in the table of permissions and in the audit.
	kind = "kubernetes"
	// openTimeout bounds how long a caller waits for a tunnel.
	openTimeout = 20 * time.Second
	headBytes   = 64 << 10
	// bearerProtocol is the prefix of a WebSocket subprotocol that is a bearer token.
	bearerProtocol = "base64url.bearer.authorization.k8s.io."
)

// Tunnels opens tunnels from workers.
type Tunnels interface {
	OpenTunnel(ctx context.Context, clusterID string, holder reach.Holder, tell func(ctx context.Context, token string) error) (reach.Tunnel,
		error)
}

// Options of a Handler.
type Options struct {
	Tunnels Tunnels
	Calls   calls.Dispatcher
	Metrics *reach.Metrics
	Audit   *audit.Calls // nil: none
}

// Handler serves the API servers of clusters. The nil Handler serves nothing.
type Handler struct {
	opts  Options
	ctx   context.Context // ends all requests
	end   context.CancelFunc
	proxy http.Handler
}

// New returns a Handler, which serves until Close.
func New(o Options) *Handler {
	h := &Handler{opts: o}
	h.ctx, h.end = context.WithCancel(context.Background())
	h.proxy = newProxy()
	return h
}

// Close ends every request.
func (h *Handler) Close() {
	if h != nil {
		h.end()
	}
}

// target is the parsed path. rest is the part for the API server, as it was sent.
type target struct{ cluster, base, rest string }

func parse(escaped string) (target, bool) {
	below, ok := strings.CutPrefix(escaped, prefix)
	if !ok {
		return target{}, false
	}
	cluster, what, _ := strings.Cut(below, "/")
	name, rest, _ := strings.Cut(what, "/")
	if name != "proxy" {
		return target{}, false
	}
	return target{cluster: cluster, base: prefix + cluster + "/proxy", rest: "/" + rest}, true
}

// Match returns the handler of a request, or nil for a request of another handler. authenticate admits callers by the Kind of the handler,
// and puts the principal in the context.
func (h *Handler) Match(r *http.Request, authenticate func(http.Handler) http.Handler) http.Handler {
	if h == nil {
		return nil
	}
	t, ok := parse(r.URL.EscapedPath())
	if !ok {
		return nil
	}
	return h.refused(t, authenticate(request{h, t}))
}

// request is the handler of one request.
type request struct {
	*Handler
	target target
}

// Kind returns the kind of the permission that the request needs.
func (request) Kind() string { return kind }

// ServeHTTP implements http.Handler.
func (q request) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	who := principal.From(ctx)
	user, groups, err := q.check(r, who)
	if err != nil {
		audit.NoteRefusal(ctx, audit.As(who.Identity), err)
		problem.FromError(err).Write(w)
		return
	}
	record, err := begin(ctx, q.opts.Audit, r, q.target)
	if err != nil {
		problem.FromError(err).Write(w)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.ctx, cancel)()
	out := &recorder{ResponseWriter: w}
	defer func() { record.end(r.Context(), out.code) }() // also if the response is aborted, which is a panic
	_ = http.NewResponseController(w).EnableFullDuplex()
	on := &forwarded{target: q.target, record: record, response: out, ctx: ctx, open: func(ctx context.Context) (reach.Tunnel, error) {
		return q.open(ctx, who, user, groups)
	}}
	q.proxy.ServeHTTP(out, r.WithContext(context.WithValue(ctx, forwardedKey{}, on)))
}

// check returns the user and groups as which the request is made.
func (q request) check(r *http.Request, who principal.Principal) (user string, groups []string, err error) {
	if err := serve.SameOrigin(r); err != nil {
		return "", nil, err
	}
	if !validate.IsClusterID(q.target.cluster) {
		return "", nil, problem.InvalidField("cluster", validate.Clip(q.target.cluster), validate.ValidClusterID)
	}
	if err := who.CheckCluster(q.target.cluster); err != nil {
		return "", nil, who.Settle(true, err)
	}
	for name := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			return "", nil, problem.New(problem.Forbidden, "%s: no user but the caller is impersonated through the hub (kubectl --as)",
				validate.Clip(name))
		}
	}
	for _, protocols := range r.Header.Values("Sec-Websocket-Protocol") {
		if strings.Contains(strings.ToLower(protocols), bearerProtocol) {
			return "", nil, problem.InvalidField("Sec-WebSocket-Protocol", bearerProtocol+"…", "no token; it belongs in Authorization")
		}
	}
	return namesOf(who.Identity)
}

// open makes the cluster's worker open a tunnel for one request.
func (h *Handler) open(ctx context.Context, who principal.Principal, user string, groups []string) (reach.Tunnel, error) {
	cluster := forwardedOf(ctx).cluster
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	tell := func(ctx context.Context, token string) error {
		_, err := calls.Workers{Dispatcher: h.opts.Calls}.Call(ctx, cluster, &federationv1.Dispatch{Call: &federationv1.Dispatch_Kubernetes{
			Kubernetes: &federationv1.KubernetesCall{Token: token, User: user, Groups: groups},
		}})
		return err
	}
	tunnel, err := h.opts.Metrics.Opened(kind, func() (reach.Tunnel, error) {
		return h.opts.Tunnels.OpenTunnel(ctx, cluster, reach.Holder{Account: who.Account()}, tell)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, problem.New(problem.Deadline, "cluster %s was not reached within %s", cluster, openTimeout)
	}
	return tunnel, err
}

type forwardedKey struct{}

// forwarded describes a request in flight.
type forwarded struct {
	target
	record   *line
	response *recorder
	ctx      context.Context // of the request; its tunnel ends with it
	open     func(context.Context) (reach.Tunnel, error)
}

func forwardedOf(ctx context.Context) *forwarded {
	f, _ := ctx.Value(forwardedKey{}).(*forwarded)
	return f
}

// newProxy forwards each request over a tunnel of its own.
func newProxy() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:        rewrite,
		ModifyResponse: confine,
		FlushInterval:  reach.FlushAfter,
		ErrorLog:       log.New(io.Discard, "", 0), // callers leave, and clusters abort responses
		Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: headBytes,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				f := forwardedOf(ctx)
				tunnel, err := f.open(ctx)
				if err != nil {
					return nil, err
				}
				tunnel = f.record.counted(tunnel)
				context.AfterFunc(f.ctx, func() { tunnel.Close(nil) })
				return reach.NewConn(tunnel), nil
			},
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			var known *problem.Error
			if !errors.As(err, &known) {
				known = problem.New(problem.Unavailable, "cluster %s did not respond: %s", forwardedOf(r.Context()).cluster,
					validate.Clip(err.Error()))
			}
			writeError(w, forwardedOf(r.Context()).target, known)
		},
	}
}

// rewrite builds the request for the worker.
func rewrite(p *httputil.ProxyRequest) {
	f := forwardedOf(p.In.Context())
	for _, name := range []string{"Authorization", "Cookie", "Origin"} {
		p.Out.Header.Del(name)
	}
	p.Out.Host = f.cluster
	p.Out.URL.Scheme, p.Out.URL.Host = "http", f.cluster
	p.Out.URL.Path, p.Out.URL.RawPath = f.rest, ""
	if unescaped, err := url.PathUnescape(f.rest); err == nil {
		p.Out.URL.Path, p.Out.URL.RawPath = unescaped, f.rest
	}
	p.Out.URL.RawQuery = p.In.URL.RawQuery // the proxy has removed what Go does not parse, such as a;b
}

// originWide are response headers that would affect the whole host.
var originWide = append(reach.OriginWide(), "Set-Cookie", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials")

// confine limits a cluster's response to its own path and origin.
func confine(r *http.Response) error {
	f := forwardedOf(r.Request.Context())
	if r.StatusCode == http.StatusSwitchingProtocols { // the proxy writes this response to the connection itself
		f.response.code = r.StatusCode
		f.record.upgraded(f.ctx)
	}
	r.Header.Del(problem.Header)
	for _, name := range originWide {
		r.Header.Del(name)
	}
	r.Header.Set("Content-Security-Policy", "sandbox")
	r.Header.Set("X-Content-Type-Options", "nosniff")
	to := r.Header.Get("Location")
	r.Header.Del("Location") // may name another host, to which a client might send its token
	if staysBelow(to) {
		r.Header.Set("Location", f.base+to)
	}
	return nil
}

// staysBelow reports whether a Location is a path on its own host that stays below any path before it. Clients treat %2e as a dot, and drop
// control characters, which url.Parse refuses.
func staysBelow(to string) bool {
	ref, err := url.Parse(to)
	return err == nil && strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.HasPrefix(to, `/\`) &&
		!strings.Contains(ref.Path, "..")
}

// recorder records the status of a response. It drops informational responses: their headers are not confined.
type recorder struct {
	http.ResponseWriter
	code int
}

func (r *recorder) WriteHeader(code int) {
	if code < http.StatusOK && code != http.StatusSwitchingProtocols {
		return
	}
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
