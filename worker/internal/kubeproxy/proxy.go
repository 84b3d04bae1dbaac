// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/validate"
)

// ServiceAccount is the identity that makes requests. It may impersonate, and nothing else.
const ServiceAccount = "atoll-proxy"

const (
	headerBytes   = 64 << 10
	headerTimeout = 10 * time.Second
	// maxRequests bounds the requests under way, even those of a faulty hub: each has buffers and a connection to the API server.
	maxRequests = 2048
)

// Options configure a Proxy.
type Options struct {
	// Config is a configuration with the identity of ServiceAccount.
	Config *rest.Config
	Prefix string
	Log    logr.Logger
}

// Proxy forwards requests from tunnels to an API server.
type Proxy struct {
	prefix  string
	server  *http.Server
	arrived lane
	seats   chan struct{}
}

// New returns a Proxy. It serves until Close.
func New(o Options) (*Proxy, error) {
	if err := CheckPrefix(o.Prefix); err != nil {
		return nil, fmt.Errorf("prefix: %w", err)
	}
	config := rest.CopyConfig(o.Config)
	config.NextProtos = []string{"http/1.1"} // upgrades need it, and an unread response must block no other
	config.DisableCompression = true         // bodies pass as they are
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("building a way to the API server: %w", err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.URL.RawQuery = p.In.URL.RawQuery                // the proxy has removed what Go does not parse, such as a;b
			who := p.In.Context().Value(identityKey{}).(Identity) // panics rather than act as the ServiceAccount itself
			clean(p.Out.Header, who)
		},
		Transport:      transport,
		FlushInterval:  reach.FlushAfter,
		ErrorLog:       log.New(io.Discard, "", 0),
		ModifyResponse: ownRefusal,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			writeStatus(w, http.StatusBadGateway, metav1.StatusReasonInternalError, "the worker did not reach its API server: "+err.Error())
		},
	}
	p := &Proxy{
		prefix: o.Prefix, arrived: lane{conns: make(chan net.Conn), done: make(chan struct{})}, seats: make(chan struct{}, maxRequests),
	}
	p.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := check(r); err != nil {
				writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
				return
			}
			_ = http.NewResponseController(w).EnableFullDuplex()
			proxy.ServeHTTP(w, r)
		}),
		MaxHeaderBytes: headerBytes, ReadHeaderTimeout: headerTimeout, ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if of, ok := c.(*conn); ok {
				ctx, cancel := context.WithCancel(context.WithValue(ctx, identityKey{}, of.who))
				context.AfterFunc(of.ctx, cancel)
				return ctx
			}
			return ctx
		},
	}
	p.server.SetKeepAlivesEnabled(false)
	go func() {
		if err := p.server.Serve(&p.arrived); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			o.Log.Error(err, "The proxy to the API server has ended")
		}
	}()
	return p, nil
}

// Close ends all requests.
func (p *Proxy) Close() { _ = p.server.Close() }

type identityKey struct{}

// Admit checks a call and reserves a seat for it. The caller then calls serve, which serves its tunnel until that is over, or leave if
// there is no tunnel.
func (p *Proxy) Admit(call *federationv1.KubernetesCall) (serve func(Caller), leave func(), err error) {
	who, err := identity(p.prefix, call.GetUser(), call.GetGroups())
	if err != nil {
		return nil, nil, err
	}
	select {
	case p.seats <- struct{}{}:
	default:
		return nil, nil, problem.New(problem.RateLimited, "the worker has %d requests to its API server under way already", maxRequests).
			WithRetryAfter(time.Second)
	}
	leave = func() { <-p.seats }
	return func(caller Caller) {
		defer leave()
		c := newConn(caller, who)
		if !p.arrived.put(c) {
			_ = c.Close()
		}
		c.wait()
	}, leave, nil
}

// ownRefusal replaces a refusal of the worker's own credentials by a gateway error.
func ownRefusal(r *http.Response) error {
	if r.StatusCode == http.StatusUnauthorized {
		return errors.New("it refuses the credentials of ServiceAccount " + ServiceAccount)
	}
	return nil
}

// lane is a listener that accepts the connections which are put into it.
type lane struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *lane) put(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.done:
		return false
	}
}

func (l *lane) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener; http.Server calls it once.
func (l *lane) Close() error {
	close(l.done)
	return nil
}

func (l *lane) Addr() net.Addr { return address{} }

// check rejects methods and upgrades that no client of Kubernetes uses.
func check(r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		return problem.InvalidField("method", validate.Clip(r.Method), "GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS")
	}
	switch to := r.Header.Get("Upgrade"); strings.ToLower(to) {
	case "", "websocket", "spdy/3.1":
		return nil
	default:
		return problem.InvalidField("Upgrade", validate.Clip(to), "websocket or SPDY/3.1")
	}
}

// writeStatus writes a refusal in the form that clients of Kubernetes read.
func writeStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
		Message: message,
	})
}
