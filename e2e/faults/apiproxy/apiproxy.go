// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/wallclock"
)

// Options describe the proxied server. All are required.
type Options struct {
	// Target is the API server's host and port.
	Target string
	// CA of the server's certificate, in PEM.
	CA []byte
	// Certificate is shown to clients.
	Certificate tls.Certificate
	// Seed of Rule.Chance.
	Seed uint64
}

// Rule applies to some requests. The first rule that matches a request decides.
type Rule struct {
	// Methods of HTTP; none: all.
	Methods []string
	// Path is a part of the URL's path; empty: all.
	Path string
	// Chance that a request is hit, between 0 and 1; 0: always.
	Chance float64

	// Delay passes before the request is forwarded.
	Delay time.Duration
	// Late forwards a delayed request even if its caller has timed out or died.
	Late bool
	// Refuse responds with 429 and a Retry-After of a second.
	Refuse bool
	// LoseAnswer carries the request out and drops the response.
	LoseAnswer bool
	// OnHit, if set, is called with every matching request before anything is done to it.
	OnHit func(*http.Request)
}

// Proxy forwards requests.
type Proxy struct {
	listener net.Listener
	server   *http.Server
	forward  *httputil.ReverseProxy
	upstream *http.Transport
	running  sync.WaitGroup

	mu     sync.Mutex
	rules  []Rule
	random *rand.Rand
}

// Listen opens a port on the loopback address.
func Listen(o Options) (*Proxy, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(o.CA) {
		return nil, errors.New("reading the API server's CA: no certificate")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("opening a proxy to the API server %s: %w", o.Target, err)
	}
	p := &Proxy{
		listener: listener,
		upstream: &http.Transport{
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			ForceAttemptHTTP2: true,
		},
		random: rand.New(rand.NewPCG(o.Seed, 0)),
	}
	silent := log.New(io.Discard, "", 0)
	p.forward = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: o.Target})
	p.forward.Transport, p.forward.FlushInterval, p.forward.ErrorLog = p.upstream, -1, silent
	// A response must be the API server's: otherwise the connection breaks, as it would without a proxy.
	p.forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	p.server = &http.Server{
		Handler: p, ErrorLog: silent, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{o.Certificate}},
	}
	p.running.Go(func() { _ = p.server.ServeTLS(listener, "", "") })
	return p, nil
}

// Address is the proxy's address.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Set replaces the rules for later requests.
func (p *Proxy) Set(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = rules
}

// Close breaks off requests in flight.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.running.Wait()
	p.upstream.CloseIdleConnections()
	return err
}

func (p *Proxy) choose(r *http.Request) Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, rule := range p.rules {
		if len(rule.Methods) > 0 && !slices.Contains(rule.Methods, r.Method) || !strings.Contains(r.URL.Path, rule.Path) {
			continue
		}
		if rule.Chance > 0 && p.random.Float64() >= rule.Chance {
			return Rule{}
		}
		return rule
	}
	return Rule{}
}

// ServeHTTP forwards one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rule := p.choose(r)
	if rule.Late {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		// Without its own cancellation, the reverse proxy would find the caller's in another way.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), rule.Delay+time.Minute)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if rule.OnHit != nil {
		rule.OnHit(r)
	}
	if rule.Refuse {
		refuse(w)
		return
	}
	if rule.Delay > 0 && wallclock.Sleep(r.Context(), clock.RealClock{}, rule.Delay) != nil {
		panic(http.ErrAbortHandler)
	}
	if rule.LoseAnswer {
		p.forward.ServeHTTP(&nowhere{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	}
	p.forward.ServeHTTP(w, r)
}

// refuse responds like an API server with full queues.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"TooManyRequests","code":429,`+
		`"message":"Too many requests, please try again later.","details":{"retryAfterSeconds":1}}`+"\n")
}

// nowhere discards responses.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}
