// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/sandboxd"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/validate"
)

const (
	// MaxHeaderBytes bounds the header of a request.
	MaxHeaderBytes = 64 << 10
	maxBody        = 256 << 10 // of the control plane
	maxResponse    = 16 << 20  // of the public API
	bodyTimeout    = 30 * time.Second
	idlePerAddress = 16
	// idleTimeInside is less than the time that a server waits for the header of a new connection (serve.DefaultLimits). Otherwise the server
	// could close a connection that was dialled but not used at the moment a request takes it, and a claim without a key is not sent twice.
	idleTimeInside = 5 * time.Second
)

// Options configure a Gateway.
type Options struct {
	// Dial connects to the public API with the given caller address.
	Dial func(ctx context.Context, from string) (net.Conn, error)
	// Key encrypts access tokens. It has KeySize bytes and is the same at each replica.
	Key []byte
	// Domain is the parent of the names PORT-ID.DOMAIN. If it is empty, clients name sandboxes in headers.
	Domain string
	// Templates stores the templates that builds create; nil: builds are not supported.
	Templates Templates
	// BuildEnv is the Env whose claims may use the images of builds, NAME or NAMESPACE/NAME; empty: there is none.
	BuildEnv string
	// BuildSandboxes is how many sandboxes try the image of a build at the same time, if that many Pods are idle; 0: none.
	BuildSandboxes int
	Now            func() time.Time
	Log            logr.Logger
}

// Gateway is an http.Handler for E2B clients.
type Gateway struct {
	opts      Options
	sealer    *sealer
	transport *http.Transport
	client    *http.Client
	control   *http.ServeMux
	data      http.Handler
}

// New returns a Gateway.
func New(o Options) (*Gateway, error) {
	sealer, err := newSealer(o.Key)
	if err != nil {
		return nil, err
	}
	g := &Gateway{opts: o, sealer: sealer}
	g.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, fmt.Errorf("reading a caller's address: %w", err)
			}
			return o.Dial(ctx, host)
		},
		DisableCompression: true, MaxIdleConnsPerHost: idlePerAddress, MaxIdleConns: 256, IdleConnTimeout: idleTimeInside,
		MaxResponseHeaderBytes: 2 * MaxHeaderBytes,
	}
	g.client = &http.Client{Transport: g.transport, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	g.data = g.newProxy()
	g.routes()
	return g, nil
}

// Close closes idle connections.
func (g *Gateway) Close() { g.transport.CloseIdleConnections() }

func (g *Gateway) routes() {
	g.control = http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (response, error)) {
		g.control.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			out, err := f(r)
			if err != nil {
				refuse(w, err)
				return
			}
			out.write(w)
		})
	}
	g.routeTemplates(handle)
	both := func(pattern string, f func(*http.Request) (response, error)) {
		method, path, _ := strings.Cut(pattern, " ")
		for _, version := range []string{"", "/v2"} {
			handle(method+" "+version+path, f)
		}
	}
	both("POST /sandboxes", g.create)
	both("GET /sandboxes", g.list)
	both("GET /sandboxes/{id}", g.get)
	both("DELETE /sandboxes/{id}", g.kill)
	both("POST /sandboxes/{id}/timeout", g.setTimeout)
	both("POST /sandboxes/{id}/refreshes", g.refresh)
	both("POST /sandboxes/{id}/connect", g.connect)
	both("POST /sandboxes/{id}/resume", g.connect)
	both("POST /sandboxes/{id}/pause", g.pause)
	for what, advice := range map[string]string{
		"GET /sandboxes/{id}/metrics": "read /metrics of the sandbox, or the cluster's metrics", "GET /sandboxes/{id}/logs": "use atollctl logs",
		"POST /sandboxes/{id}/snapshots": "a snapshot of memory is not taken; pause keeps the sandbox",
		"POST /sandboxes/{id}/fork":      "create another sandbox", "PUT /sandboxes/{id}/network": "the Env's annotation egress has the rules",
		"GET /snapshots": "a snapshot of memory is not taken", "/volumes": "put volumes into the Env's template",
		"/volumes/": "put volumes into the Env's template", "/volumecontent/": "put volumes into the Env's template",
		"/secrets": "pass credentials by envVars", "/secrets/": "pass credentials by envVars",
	} {
		g.control.HandleFunc(what, func(w http.ResponseWriter, _ *http.Request) { refuse(w, absent(what, advice)) })
	}
	g.control.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	g.control.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, problem.New(problem.NotFound, "%s %s is not a call of E2B's that is served here", r.Method, validate.Clip(r.URL.Path)))
	})
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if port, id, ok := serve.SandboxHost(r.Host, g.opts.Domain); ok && g.opts.Domain != "" {
		g.toSandbox(w, r, id, port)
		return
	}
	if id := r.Header.Get("E2b-Sandbox-Id"); id != "" {
		g.toSandbox(w, r, id, r.Header.Get("E2b-Sandbox-Port"))
		return
	}
	if r.ContentLength != 0 { // without a body, net/http already reads on, and a deadline would end the request's context
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	g.control.ServeHTTP(w, r)
}

// response is a response of the control plane.
type response struct {
	status int
	header map[string]string
	body   any // nil: none
}

func (r response) write(w http.ResponseWriter) {
	for name, value := range r.header {
		w.Header().Set(name, value)
	}
	if r.body == nil {
		w.WriteHeader(r.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(r.body)
}

func invalid(field, value, valid string) error { return problem.InvalidField(field, value, valid) }

func absent(what, advice string) error {
	return problem.New(problem.Unimplemented, "%s: not served here; %s", what, advice)
}

// refusal is an error that the public API returned.
type refusal struct {
	status     int
	message    string
	retryAfter string
	reason     string // the public API's
}

func (r *refusal) Error() string { return r.message }

// refuse writes an error in E2B's format.
func refuse(w http.ResponseWriter, err error) {
	var known *refusal
	if !errors.As(err, &known) {
		p := problem.FromError(err)
		known = &refusal{status: p.Reason.HTTPStatus(), message: p.Error()}
	}
	if known.retryAfter != "" {
		w.Header().Set("Retry-After", known.retryAfter)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(known.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": known.status, "message": known.message})
}

// from returns the address of a request's caller.
func from(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "127.0.0.1"
	}
	return host
}

// base returns the root URL of the public API for a caller. It contains the caller's address, so that each address has its own connections.
func base(r *http.Request) string { return "http://" + net.JoinHostPort(from(r), "80") }

// authorize adds a caller's API key to a request to the public API.
func authorize(request *http.Request, key string) {
	request.Host = "localhost"
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
}

// call calls the public API on behalf of a request's caller.
func (g *Gateway) call(r *http.Request, method, path string, in any, out proto.Message) error {
	text, err := g.send(r.Context(), r, method, path, in)
	if err != nil || out == nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, out); err != nil {
		return fmt.Errorf("reading a response of the API: %w", err)
	}
	return nil
}

func (g *Gateway) send(ctx context.Context, r *http.Request, method, path string, in any) ([]byte, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("writing a call of the API: %w", err)
		}
		body = strings.NewReader(string(text))
	}
	request, err := http.NewRequestWithContext(ctx, method, base(r)+path, body)
	if err != nil {
		return nil, fmt.Errorf("writing a call of the API: %w", err)
	}
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key := r.Header.Get(keyHeader); key != "" && method == http.MethodPost && path == sandboxesPath {
		request.Header.Set(keyHeader, key)
	}
	authorize(request, apiKey(r.Header.Get("X-Api-Key")))
	answer, err := g.client.Do(request)
	if err != nil {
		return nil, problem.New(problem.Unavailable, "the API did not respond: %s", validate.Clip(err.Error()))
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxResponse))
	if err != nil {
		return nil, problem.New(problem.Unavailable, "the API did not respond: %s", validate.Clip(err.Error()))
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return nil, refusalOf(&sandboxd.StatusError{Status: answer.StatusCode, Header: answer.Header, Body: text})
	}
	return text, nil
}

func refusalOf(e *sandboxd.StatusError) *refusal {
	var said struct{ Reason string }
	_ = json.Unmarshal(e.Body, &said) // a proxy may have sent another format
	return &refusal{e.Status, e.Error(), e.Header.Get("Retry-After"), said.Reason}
}

// asCaller sends requests with a caller's API key.
type asCaller struct {
	client *http.Client
	key    string
}

// Do implements connect.HTTPClient.
func (a asCaller) Do(request *http.Request) (*http.Response, error) {
	authorize(request, a.key)
	return a.client.Do(request)
}
