// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/api"
	"navix.sh/atoll/hub/internal/attach"
	"navix.sh/atoll/hub/internal/claims"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/lastknown"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/hub/internal/registrycopy"
	"navix.sh/atoll/hub/internal/sandboxes"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/version"
	"navix.sh/atoll/pkg/wallclock"
)

// hub holds everything that runs.
type hub struct {
	log     logr.Logger
	metrics registry
	tracing *telemetry.Tracing

	claimsFile, registryFile *store.Bolt
	rotation                 *store.Rotation // nil: the files are not encrypted
	recovery                 *recovery.State
	registryCopy             *registrycopy.Copy // nil: there is no copy

	fleet     *fleet.Fleet
	lastKnown *lastknown.Sandboxes
	claims    *claims.Service
	auth      *api.Authenticator // nil without keys
	link      *grpc.Server
	public    *api.Server
}

// registry is where metrics are registered and served from.
type registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// registrar has its own metrics.
type registrar interface {
	Register(prometheus.Registerer) error
}

// run builds the hub, runs it until ctx ends, and takes it down.
func run(ctx context.Context, o *options, log logr.Logger) (err error) {
	h := &hub{log: log, metrics: prometheus.NewRegistry()}
	h.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	defer func() { err = errors.Join(err, h.close()) }()
	if err := h.build(ctx, o); err != nil {
		return err
	}
	listeners, err := listen(o.listen, o.linkListen, o.metricsListen, o.healthListen)
	if err != nil {
		return err
	}
	log.Info("Atoll hub is up", "version", version.String(), "api", listeners[0].Addr().String(), "link", listeners[1].Addr().String(),
		"authenticated", !o.open(), "tls", o.secure())
	return h.serve(ctx, listeners)
}

func (h *hub) build(ctx context.Context, o *options) error {
	real, err := wallclock.New()
	if err != nil {
		return err
	}
	if h.tracing, err = o.tracing.Open(ctx, telemetry.Service{Name: "atoll-hub", Version: version.String()},
		h.log.WithName("traces")); err != nil {
		return err
	}
	credentials, err := link.LoadCredentials(o.tls, h.log.WithName("link"))
	if err != nil {
		return err
	}
	if who, err := credentials.Identity(); err != nil || who != link.Hub() {
		return errors.Join(fmt.Errorf("--tls-cert-file %s is no hub's certificate, want the URI name %s", o.tls.Cert, link.Hub()), err)
	}
	if err := h.openStore(ctx, real, o); err != nil {
		return err
	}
	registry, err := h.openRegistry(ctx, o)
	if err != nil {
		return err
	}
	if h.recovery, err = recovery.Open(ctx, h.claimsFile, h.registryFile, real); err != nil {
		return fmt.Errorf("pairing the hub's files: %w", err)
	}
	if last := h.recovery.Status(nil).Last; last != nil && h.recovery.Recovering() {
		h.log.Info("Claim keys were lost: claims with a key wait for the key indexes of all clusters", "reason", last.Cause)
	}
	h.fleet, err = fleet.New(ctx, fleet.Options{
		Clock: real, Registry: registry, HubID: "hub", Version: version.String(),
		Log: h.log.WithName("fleet"), Metrics: h.metrics, Limits: o.cluster,
		Recovering: func(clusterID string) bool { return len(h.recovery.Unheard([]string{clusterID})) > 0 },
	})
	if err != nil {
		return fmt.Errorf("starting the fleet: %w", err)
	}
	if h.registryCopy != nil {
		h.registryCopy.Sync(ctx)
	}
	workers := attach.NewServer(attach.Options{Fleet: h.fleet, Clock: real, Log: h.log.WithName("attach"), Tunnels: o.shares})
	h.lastKnown = lastknown.New(lastknown.Options{Dispatcher: workers, Clusters: h.fleet.ClusterIDs, Clock: real})
	h.claims = claims.New(claims.Options{
		Fleet: h.fleet, Dispatcher: h.lastKnown, Store: h.claimsFile, Recovery: h.recovery, Clock: real, Log: h.log.WithName("claims"),
		Metrics: h.metrics, Retention: o.retention, Quota: o.quota, RefuseCredentials: o.refuseCredentials,
	})
	workers.Handle(h.claims)
	linkMetrics, err := link.NewMetrics(h.metrics)
	for _, part := range []registrar{credentials, workers, h.claimsFile, h.registryFile} {
		err = errors.Join(err, part.Register(h.metrics))
	}
	if err := errors.Join(err, h.recovery.Register(h.metrics, h.fleet.ClusterIDs)); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	h.link = link.NewServer(credentials, linkMetrics, h.log.WithName("link"))
	federationv1.RegisterLinkServer(h.link, workers)
	return h.buildAPI(o, credentials, real, workers)
}

// openStore opens both files. It waits for a lock; because a Pod that was deleted by force may still be ending when its
// replacement starts. If both hubs keep running, the second one exits.
func (h *hub) openStore(ctx context.Context, clk clock.PassiveClock, o *options) error {
	dir, err := o.storeDir()
	if err != nil {
		return err
	}
	var sealer *envelope.Sealer
	if o.encryptionKeys != "" {
		keys, err := envelope.OpenKeyFile(o.encryptionKeys)
		if err != nil {
			return err
		}
		h.rotation = &store.Rotation{Keys: keys, Clock: clock.RealClock{}, Log: h.log.WithName("encryption")}
		sealer = envelope.New(keys)
	}
	until := clk.Now().Add(o.lockWait)
	open := func(kind hubstate.Kind) (*store.Bolt, error) {
		for {
			file, err := hubstate.OpenSealed(dir, kind, sealer)
			if err == nil || !errors.Is(err, store.ErrLocked) || ctx.Err() != nil || clk.Now().After(until) {
				return file, err
			}
			h.log.Info("Waiting for another hub to let go of the store", "error", err.Error())
		}
	}
	if h.claimsFile, err = open(hubstate.Claims); err != nil {
		return err
	}
	if h.registryFile, err = open(hubstate.Registry); err != nil {
		return err
	}
	if h.rotation != nil {
		h.rotation.Files = h.files()
	}
	if err := hubstate.Tidy(dir); err != nil { // the files are locked by this process, so no other one uses them
		h.log.Error(err, "Could not remove what an interrupted backup has left")
	}
	return nil
}

// openRegistry returns the registry, restored from its copy if it was lost.
func (h *hub) openRegistry(ctx context.Context, o *options) (fleet.Registry, error) {
	registry := fleet.NewRegistry(h.registryFile)
	place, err := o.copyPlace(h.log)
	if err != nil {
		return nil, fmt.Errorf("--registry-copy: %w", err)
	}
	if place == nil {
		return registry, nil
	}
	if h.registryCopy, err = registrycopy.Open(ctx, place, h.claimsFile, h.registryFile, h.log.WithName("registry-copy")); err != nil {
		return nil, fmt.Errorf("--registry-copy: %w", err)
	}
	return h.registryCopy.Guard(registry), nil
}

func (h *hub) buildAPI(o *options, credentials *link.Credentials, real clock.WithTicker, workers *attach.Server) (err error) {
	measures, err := reach.NewMetrics(h.metrics, "atoll_hub")
	if err != nil {
		return err
	}
	if !o.open() {
		if h.auth, err = api.NewAuthenticator(o.apiKeysFile, real, h.log.WithName("auth")); err != nil {
			return err
		}
	}
	dir, err := o.storeDir()
	if err != nil {
		return err
	}
	status := &status{
		files: hubstate.Files{Claims: h.claimsFile, Registry: h.registryFile, Dir: dir, Version: version.String()},
		hub:   h, clock: real, expiry: credentials.Expiry,
	}
	service := sandboxes.New(sandboxes.Options{
		Fleet: h.fleet, Dispatcher: h.lastKnown, Claims: h.claims, Tunnels: workers, LastKnown: h.lastKnown, Feeds: workers, Clock: real,
		Log: h.log.WithName("sandboxes"),
	})
	options := api.Options{
		Claims: h.claims, Sandboxes: service, Reach: measures.Measure(service), Fleet: h.fleet, Hub: status, Auth: h.auth,
		Clock: real, Limits: o.limits, Web: o.web, Traces: h.tracing.Provider, Metrics: h.metrics, Log: h.log.WithName("api"),
	}
	if o.secure() {
		options.TLS = credentials.PublicConfig()
	}
	h.public, err = api.New(options)
	return err
}

// serve ends in order: callers first, while workers are still attached and can respond, then everything else.
func (h *hub) serve(ctx context.Context, listeners []net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	probes := newProbes(h.metrics, h.claimsFile)
	group.Go(func() error {
		defer end()
		return h.public.Serve(ctx, listeners[0])
	})
	group.Go(func() error {
		stopped := context.AfterFunc(inner, h.link.Stop)
		defer stopped()
		return h.link.Serve(serve.Limit(listeners[1], link.MaxHandshakes, link.MaxHandshakesPerAddress))
	})
	group.Go(func() error { return probes.serveMetrics(inner, listeners[2]) })
	group.Go(func() error { return probes.serveHealth(inner, listeners[3]) })
	group.Go(func() error {
		<-ctx.Done()
		probes.ending.Store(true)
		return nil
	})
	group.Go(func() error { return h.fleet.Run(inner) })
	group.Go(func() error { return h.recovery.Run(inner, clock.RealClock{}) })
	group.Go(func() error { return h.claims.Run(inner) })
	group.Go(func() error { return h.lastKnown.Run(inner) })
	if h.registryCopy != nil {
		group.Go(func() error { return h.registryCopy.Run(inner, clock.RealClock{}) })
	}
	if h.auth != nil {
		group.Go(func() error { return h.auth.Run(inner) })
	}
	if h.rotation != nil {
		group.Go(func() error { return h.rotation.Run(inner) })
	}
	return group.Wait()
}

// close ends what outlives serve. Claims write to the store until they end.
func (h *hub) close() error {
	if h.claims != nil {
		h.claims.Close()
	}
	var errs []error
	for _, file := range h.files() {
		errs = append(errs, file.Close())
	}
	if err := h.tracing.Close(); err != nil {
		h.log.Info("Traces were lost", "error", err.Error())
	}
	h.log.Info("Atoll hub has ended")
	return errors.Join(errs...)
}

// files are the store's files that are open.
func (h *hub) files() (open []*store.Bolt) {
	for _, file := range []*store.Bolt{h.claimsFile, h.registryFile} {
		if file != nil {
			open = append(open, file)
		}
	}
	return open
}

// listen opens all addresses or none.
func listen(addresses ...string) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			for _, open := range listeners {
				_ = open.Close()
			}
			return nil, fmt.Errorf("listening on %s: %w", address, err)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}
