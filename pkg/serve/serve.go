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

// defaultDrain is how long calls may go on once the server is told to stop.
const defaultDrain = 5 * time.Second

// Options configure a Server.
type Options struct {
	Services []Service
	// Unary interceptors see every call, first in the list first, whichever protocol it came by.
	Unary []grpc.UnaryServerInterceptor
	// Stream interceptors see gRPC streams.
	Stream []grpc.StreamServerInterceptor
	// Admit knows callers, by either protocol, before anything else is read of a request than its header. Nil: everybody is
	// let in. Health checks and the OpenAPI document need no credentials.
	Admit Admit
	// Further returns the handler of a request that is none of the translated calls, else nil. It sees hosts and paths as they
	// were written, before anything else does, and bodies of any size. Of what pages ask for is its own to judge (SameOrigin).
	// What it has taken over (upgrades) is its own to end.
	Further func(*http.Request) http.Handler
	// Web is by which names browsers reach the server.
	Web Web
	// Limits bound what callers can make the server hold.
	Limits Limits
	// OpenAPI is served at /openapi.json.
	OpenAPI []byte
	// TLS serves over TLS. Its NextProtos are set here.
	TLS *tls.Config
	// Drain is how long calls may go on after the end; 5 s if zero.
	Drain time.Duration
	Log   logr.Logger
}

// Server answers gRPC and REST on one listener.
type Server struct {
	opts   Options
	guard  *guard
	grpc   *grpc.Server
	http   *http.Server
	health *health.Server
}

// New builds a server. It starts out healthy; see SetServing.
func New(opts Options) (*Server, error) {
	if opts.Drain <= 0 {
		opts.Drain = defaultDrain
	}
	opts.Limits = opts.Limits.filled()
	unary := append([]grpc.UnaryServerInterceptor{ExplainErrors}, opts.Unary...)
	guard := newGuard(opts.Limits, opts.Admit)
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
	local := newLocalConn(append([]grpc.UnaryServerInterceptor{adoptClaimKey}, unary...))
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
		WriteTimeout:      opts.Limits.BodyTimeout, // where nothing else is said
		IdleTimeout:       opts.Limits.IdleTimeout,
		ConnState:         headBegins,
	}
	return s, nil
}

// SetServing says whether the server can do its work, for gRPC health and /healthz.
func (s *Server) SetServing(ok bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if ok {
		status = healthv1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
}

// Serve answers on lis until ctx ends, then lets calls finish for a moment. It closes lis.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	lis = Limit(lis, s.opts.Limits.Connections, s.opts.Limits.PerAddress)
	if s.opts.TLS != nil {
		cfg := s.opts.TLS.Clone()
		cfg.NextProtos = []string{"http/1.1", "h2"}
		lis = tls.NewListener(lis, cfg)
	}
	split := newSplitter(lis, s.opts.Limits.HeaderTimeout, s.opts.Limits.BodyTimeout)
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

// stop ends both protocols at once, and what still runs after the drain time by force.
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

// ended passes on why a part stopped, unless it was told to.
func ended(what string, err error) error {
	if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// CheckAddress refuses an address beyond loopback for a server that cannot tell its callers apart.
func CheckAddress(address string, authenticated bool) error {
	if authenticated {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("reading listen address: %w", err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("listening on %s needs credentials: without them only loopback is allowed", address)
}
