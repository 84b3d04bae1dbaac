// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

// defaultDrain is how long calls may continue after the server is stopped.
const defaultDrain = 5 * time.Second

// Options configure a Server.
type Options struct {
	Services []Service
	// Unary interceptors see every call of either protocol, in the list's order.
	Unary []grpc.UnaryServerInterceptor
	// Stream interceptors see streams of either protocol.
	Stream []grpc.StreamServerInterceptor
	// Admit authenticates callers of either protocol once the header of a request is read. If it is nil, every caller is admitted. Health
	// checks and the OpenAPI document need no credentials.
	Admit Admit
	// Further returns the handler of a request that is not an API call, or nil. It runs before any other handler, with the host and path as
	// the caller wrote them and bodies of any size. Its handlers check the origin of requests themselves (SameOrigin), and end the connections
	// that they have taken over (upgrades).
	Further func(*http.Request) http.Handler
	// Web holds the names by which browsers reach the server.
	Web Web
	// Limits bound what callers can make the server hold.
	Limits Limits
	// OpenAPI is served at /openapi.json.
	OpenAPI []byte
	// TLS enables TLS if it is set. New sets its NextProtos.
	TLS *tls.Config
	// Drain is how long calls may continue after Serve's context ends; 5 s if zero.
	Drain time.Duration
	// Metrics count callers that wait. May be nil.
	Metrics *Metrics
	Log     logr.Logger
}

// Server serves gRPC and REST on one listener.
type Server struct {
	opts   Options
	guard  *guard
	grpc   *grpc.Server
	http   *http.Server
	health *health.Server
}

// New returns a server that reports itself healthy until it shuts down.
func New(opts Options) (*Server, error) {
	if opts.Drain <= 0 {
		opts.Drain = defaultDrain
	}
	opts.Limits = opts.Limits.filled()
	unary := append([]grpc.UnaryServerInterceptor{ExplainErrors}, opts.Unary...)
	guard := newGuard(opts.Limits, opts.Admit)
	if opts.Admit != nil {
		guard.paces = newPaces(opts.Limits, opts.Metrics)
	}
	s := &Server{
		opts:   opts,
		guard:  guard,
		health: health.NewServer(),
		grpc: grpc.NewServer(append(guard.options(),
			grpc.ChainUnaryInterceptor(unary...),
			grpc.ChainStreamInterceptor(append([]grpc.StreamServerInterceptor{explainStreamErrors, guard.stream}, opts.Stream...)...),
		)...),
	}
	calls := guard.registrar(s.grpc)
	local := newLocalConn(append([]grpc.UnaryServerInterceptor{adoptClaimKey}, unary...),
		append([]grpc.StreamServerInterceptor{explainStreamErrors}, opts.Stream...))
	for _, service := range opts.Services {
		service.Register(calls)
		service.Register(local)
	}
	healthv1.RegisterHealthServer(calls, s.health)
	reflection.Register(s.grpc)

	handler, err := s.handler(local)
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler:           handler,
		MaxHeaderBytes:    opts.Limits.HeaderBytes,
		ReadHeaderTimeout: opts.Limits.HeaderTimeout,
		WriteTimeout:      opts.Limits.BodyTimeout, // the default
		IdleTimeout:       opts.Limits.IdleTimeout,
		ConnState:         headBegins,
		ConnContext:       WithMeter,
	}
	return s, nil
}

// Serve serves lis until ctx ends, then waits up to Drain for running calls. It closes lis.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	lis = limit(lis, s.opts.Limits.Connections, s.opts.Limits.PerAddress, s.guard.paces)
	if s.opts.TLS != nil {
		cfg := s.opts.TLS.Clone()
		cfg.NextProtos = []string{"http/1.1", "h2"}
		lis = tls.NewListener(lis, cfg)
	}
	split := newSplitter(lis, s.opts.Limits.HeaderTimeout, s.opts.Limits.BodyTimeout, s.guard.untaken)
	var group errgroup.Group
	group.Go(func() error { return ended("accepting connections", split.run()) })
	group.Go(func() error { return ended("serving gRPC", s.grpc.Serve(split.grpc)) })
	group.Go(func() error { return ended("serving HTTP", s.http.Serve(split.http)) })

	failed := make(chan error, 1)
	go func() { failed <- group.Wait() }()
	select {
	case <-ctx.Done():
	case <-split.done:
	}
	s.stop(split)
	return <-failed
}

// ServeInside serves REST to callers within the process, without TLS, until ctx ends or Serve does. It closes lis.
func (s *Server) ServeInside(ctx context.Context, lis net.Listener) error {
	split := newSplitter(limit(lis, s.opts.Limits.Connections, s.opts.Limits.PerAddress, s.guard.paces), s.opts.Limits.HeaderTimeout,
		s.opts.Limits.BodyTimeout, s.guard.untaken)
	defer context.AfterFunc(ctx, split.close)()
	var group errgroup.Group
	group.Go(func() error { return ended("accepting connections", split.run()) })
	group.Go(func() error {
		defer split.close()
		return ended("serving HTTP", s.http.Serve(split.http))
	})
	return group.Wait()
}

// stop shuts down both protocols at the same time. It aborts calls that still run after the drain time.
func (s *Server) stop(split *splitter) {
	s.health.Shutdown()
	split.close()
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Drain)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.grpc.GracefulStop()
	}()
	if err := s.http.Shutdown(ctx); err != nil {
		s.opts.Log.Info("Ending HTTP calls that did not finish in time", "error", err.Error())
		_ = s.http.Close()
	}
	select {
	case <-drained:
	case <-ctx.Done():
		s.grpc.Stop()
		<-drained
	}
}

// ended returns why a part of the server stopped, or nil if the stop was requested.
func ended(what string, err error) error {
	if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// CheckLoopback rejects an address that is not on loopback. It is for servers without authentication.
func CheckLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("reading listen address: %w", err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("listening on %s needs credentials: without them only loopback is allowed", address)
}
