// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/allotment"
	"navix.sh/atoll/hub/internal/api"
	"navix.sh/atoll/hub/internal/attach"
	"navix.sh/atoll/hub/internal/authority"
	"navix.sh/atoll/hub/internal/catalog"
	"navix.sh/atoll/hub/internal/claims"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/grants"
	"navix.sh/atoll/hub/internal/kubeproxy"
	"navix.sh/atoll/hub/internal/lastknown"
	"navix.sh/atoll/hub/internal/peers"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/hub/internal/registrycopy"
	"navix.sh/atoll/hub/internal/sandboxes"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/e2b"
	"navix.sh/atoll/pkg/environment"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/members"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/version"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/pkg/watch"
)

// hub holds everything that runs.
type hub struct {
	log     logr.Logger
	metrics registry
	tracing *telemetry.Tracing
	probes  *probes
	audit   *audit.Log // nil: none

	claimsStore, registryStore hubstate.Store
	rotation                   *store.Rotation // nil: the stores are not encrypted
	recovery                   *recovery.State
	registryCopy               *registrycopy.Copy // nil: there is no copy

	authority *authority.Authority // nil: certificates come from files
	fleet     *fleet.Fleet
	lastKnown *lastknown.Sandboxes
	claims    *claims.Service
	grants    *grants.Service
	catalog   *catalog.Service
	auth      *api.Authenticator // nil: callers need no credentials
	link      *grpc.Server
	public    *api.Server
	publicTLS *tls.Config // nil: plain text
	e2b       *e2b.Front  // nil: there is none
	inside    *e2b.Inside // listener for sessions of agents; nil: there are none

	background []runner // parts that run in addition to those in serve

	workers *attach.Server
	replica string // name
	since   *timestamppb.Timestamp

	// With several replicas; nil: there is one.
	peerListener net.Listener
	members      *members.Members
	peers        *peers.Service
}

// registry registers and serves metrics.
type registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// registrar registers its own metrics.
type registrar interface {
	Register(prometheus.Registerer) error
}

// run builds the hub, runs it until ctx ends, and closes it.
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
	if err := h.listenE2B(ctx, o); err != nil {
		for _, l := range listeners {
			_ = l.Close()
		}
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
	credentials, err := h.fileCredentials(o)
	if err != nil {
		return err
	}
	if err := h.openStore(ctx, real, o); err != nil {
		return err
	}
	h.probes = newProbes(h.metrics, h.claimsStore)
	if h.audit, err = o.audit.Open(ctx, audit.Environment{
		DataDir: o.dataDir, Replica: o.replicas.replicaName(), Clock: real, Metrics: h.metrics, Log: h.log.WithName("audit"),
		OTLP: func(ctx context.Context) (audit.Sink, error) {
			logs, err := o.tracing.OpenLogs(ctx, telemetry.Service{Name: "atoll-hub", Version: version.String()})
			if err != nil {
				return nil, err
			}
			return audit.Collector(logs), nil
		},
	}); err != nil {
		return err
	}
	registry, err := h.openRegistry(ctx, o)
	if err != nil {
		return err
	}
	if credentials, err = h.openAuthority(ctx, o, real, credentials); err != nil {
		return err
	}
	if h.recovery, err = recovery.Open(ctx, h.claimsStore, h.registryStore, real); err != nil {
		return fmt.Errorf("pairing the hub's files: %w", err)
	}
	if last := h.recovery.Status(nil).Last; last != nil && h.recovery.Recovering() {
		h.log.Info("Claim keys were lost: claims with a key wait for the key indexes of all clusters", "reason", last.Cause)
	}
	h.fleet, err = fleet.New(ctx, fleet.Options{
		Clock: real, Registry: registry, HubID: o.replicas.replicaName(), Version: version.String(),
		Log: h.log.WithName("fleet"), Metrics: h.metrics, Limits: o.cluster, Allotments: o.allotments,
		Recovering: func(clusterID string) bool { return len(h.recovery.Unheard([]string{clusterID})) > 0 },
	})
	if err != nil {
		return fmt.Errorf("starting the fleet: %w", err)
	}
	if h.registryCopy != nil {
		h.registryCopy.Sync(ctx)
	}
	attaching := attach.Options{
		Fleet: h.fleet, Clock: real, Log: h.log.WithName("attach"), Tunnels: o.shares, Rates: o.rates.Bytes(),
		Audit:  h.audit,
		Ledger: recovery.Marks{State: h.recovery, Clock: real, Log: h.log.WithName("recovery")},
	}
	if h.authority != nil {
		h.authority.Serve(h.fleet)
		attaching.Authority = h.authority
	}
	workers := attach.NewServer(attaching)
	through, err := h.buildPeers(o, credentials, workers, real)
	if err != nil {
		return err
	}
	h.since = timestamppb.New(real.Now())
	h.lastKnown = lastknown.New(lastknown.Options{Dispatcher: through, Clusters: h.fleet.ClusterIDs, Clock: real})
	h.claims = claims.New(claims.Options{
		Fleet: h.fleet, Dispatcher: h.lastKnown, Store: h.claimsStore, Replica: h.replica, Live: h.live,
		Recovery: h.recovery, Clock: real, Log: h.log.WithName("claims"),
		Metrics: h.metrics, Retention: o.retention, Quota: o.quota, RefuseCredentials: o.refuseCredentials,
	})
	workers.Handle(h.claims)
	h.recovery.OnReplaced(workers.EndAll)
	linkMetrics, err := link.NewMetrics(h.metrics)
	for _, part := range []registrar{credentials, workers, h.claimsStore, h.registryStore} {
		err = errors.Join(err, part.Register(h.metrics))
	}
	if err := errors.Join(err, h.recovery.Register(h.metrics, h.fleet.ClusterIDs)); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if h.authority != nil {
		h.link = link.NewJoiningServer(credentials, linkMetrics, h.log.WithName("link"))
		link.RegisterJoining(h.link, auditedJoin(h.audit, h.authority.Join))
		if err := h.authority.Register(h.metrics); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	} else {
		h.link = link.NewServer(credentials, linkMetrics, h.log.WithName("link"))
	}
	federationv1.RegisterLinkServer(h.link, workers)
	return h.buildAPI(ctx, o, credentials, real, through)
}

func (h *hub) buildAPI(ctx context.Context, o *options, credentials *link.Credentials, real clock.WithTicker,
	reaching reaching) (err error) {
	measures, err := reach.NewMetrics(h.metrics, "atoll_hub")
	if err != nil {
		return err
	}
	watches, err := watch.NewMetrics(h.metrics, "atoll_hub")
	if err != nil {
		return err
	}
	if err := h.authenticate(ctx, o, real); err != nil {
		return err
	}
	place, err := o.place()
	if err != nil {
		return err
	}
	status := &status{
		files: hubstate.Files{Claims: h.claimsStore, Registry: h.registryStore, Dir: cmp.Or(place.Dir, o.dataDir), Version: version.String()},
		hub:   h, clock: real, credentials: credentials, open: o.open(),
	}
	o.watches.Patience = o.limits.BodyTimeout
	service := sandboxes.New(sandboxes.Options{
		Fleet: h.fleet, Dispatcher: h.lastKnown, Claims: h.claims, Tunnels: reaching, LastKnown: h.lastKnown, Feeds: reaching, Clock: real,
		Watches: o.watches, Metrics: watches, Log: h.log.WithName("sandboxes"),
	})
	daemons := o.e2b.DaemonKey(o.dataDir, place.Etcd != nil)
	h.claims.SetEnvironment(environment.New(environment.Options{Opener: service, Key: daemons, Clock: real}))
	if err := h.buildCatalog(ctx, &o.catalog, real, reaching); err != nil {
		return err
	}
	options := api.Options{
		Claims: h.claims, Sandboxes: service, Reach: measures.Measure(service), Tokens: tokens(daemons),
		Fleet: h.fleet, Hub: status, Auth: h.auth,
		Catalog: h.catalog, Templates: catalog.Templates{Service: h.catalog},
		Keys: grants.KeysAPI{Service: h.grants}, Access: grants.AccessAPI{Service: h.grants}, Limiter: h.grants,
		Clock: real, Limits: o.limits, Web: o.web, Traces: h.tracing.Provider, Metrics: h.metrics, Audit: h.audit,
		Log: h.log.WithName("api"),
	}
	if o.allotments {
		divided, err := allotment.New(allotment.Options{
			Store: h.registryStore, Fleet: h.fleet, Calls: reaching, Clock: real, Metrics: h.metrics, Log: h.log.WithName("allotments"),
		})
		if err != nil {
			return err
		}
		options.Shares, h.background = divided, append(h.background, divided)
	}
	if h.authority != nil {
		options.Authority = h.authority
	}
	h.inside, options.MCP = o.mcp.handler(h.log.WithName("mcp"))
	if o.clustersProxy {
		options.Proxy = &kubeproxy.Options{Tunnels: reaching, Calls: reaching, Metrics: measures}
	}
	if o.secure() {
		options.TLS = credentials.PublicConfig()
		h.publicTLS = options.TLS
	}
	h.public, err = api.New(options)
	return err
}

// serve runs the hub until ctx ends. It stops in order: callers first, while workers are still attached and can respond, then everything
// else.
func (h *hub) serve(ctx context.Context, listeners []net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	h.probes.cutOff, h.probes.othersServe = h.cutOff, h.othersServe
	group.Go(func() error {
		defer end()
		err := h.public.Serve(ctx, listeners[0])
		h.redirectWorkers()
		return err
	})
	if h.e2b != nil {
		group.Go(func() error { return h.e2b.Serve(ctx, h.public.ServeInside) })
	}
	if h.inside != nil {
		group.Go(func() error { return h.public.ServeInside(inner, h.inside) })
	}
	h.servePeers(inner, group)
	group.Go(func() error {
		stopped := context.AfterFunc(inner, h.link.Stop)
		defer stopped()
		return h.link.Serve(serve.Limit(listeners[1], link.MaxHandshakes, link.MaxHandshakesPerAddress))
	})
	group.Go(func() error { return h.probes.serveMetrics(inner, listeners[2]) })
	group.Go(func() error { return h.probes.serveHealth(inner, listeners[3]) })
	group.Go(func() error {
		<-ctx.Done()
		h.probes.ending.Store(true)
		return nil
	})
	if etcd, is := h.claimsStore.(*store.Etcd); is {
		group.Go(func() error {
			select {
			case <-etcd.SetBack():
				return store.ErrSetBack
			case <-inner.Done():
				return nil
			}
		})
	}
	group.Go(func() error { return h.fleet.Run(inner) })
	if h.authority != nil {
		group.Go(func() error { return h.authority.Run(inner) })
	}
	group.Go(func() error { return h.recovery.Run(inner, clock.RealClock{}) })
	group.Go(func() error { return h.claims.Run(inner) })
	group.Go(func() error { return h.lastKnown.Run(inner) })
	if h.registryCopy != nil {
		group.Go(func() error { return h.registryCopy.Run(inner, clock.RealClock{}) })
	}
	group.Go(func() error { return h.grants.Run(inner) })
	group.Go(func() error { return h.catalog.Run(inner) })
	if h.auth != nil {
		group.Go(func() error { return h.auth.Run(inner) })
	}
	for _, r := range h.background {
		group.Go(func() error { return r.Run(inner) })
	}
	if h.rotation != nil {
		group.Go(func() error { return h.rotation.Run(inner) })
	}
	return group.Wait()
}

// close closes what outlives serve. Claims write to the store until they are closed.
func (h *hub) close() error {
	if h.claims != nil {
		h.claims.Close()
	}
	errs := []error{h.closePeers()}
	for _, open := range []hubstate.Store{h.claimsStore, h.registryStore} {
		if open != nil {
			errs = append(errs, open.Close())
		}
	}
	if err := h.audit.Close(); err != nil {
		h.log.Info("Audit lines were lost", "error", err.Error())
	}
	if err := h.tracing.Close(); err != nil {
		h.log.Info("Traces were lost", "error", err.Error())
	}
	h.log.Info("Atoll hub has ended")
	return errors.Join(errs...)
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
