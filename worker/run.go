// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/version"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/agent"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/autoscale"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/env"
	"navix.sh/atoll/worker/internal/foreigncontroller"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/latency"
	"navix.sh/atoll/worker/internal/lease"
	"navix.sh/atoll/worker/internal/localapi"
	"navix.sh/atoll/worker/internal/podtunnel"
	"navix.sh/atoll/worker/internal/replicas"
	"navix.sh/atoll/worker/internal/sandboxcache"
	"navix.sh/atoll/worker/internal/sandboxes"
	"navix.sh/atoll/worker/internal/sync"
)

// Leader election as Kubernetes' own controllers have it, but for followers, which try four times as often: while a leader
// that ends in order hands over, its cluster has none. Package lease keeps that from being paid for in renewals.
const (
	leaseName     = "atoll-worker"
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 500 * time.Millisecond
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=atoll-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=atoll-system,resources=leases,resourceNames=atoll-worker,verbs=get;update

// run wires the worker together and runs it until ctx ends.
func run(ctx context.Context, o options, log logr.Logger) error {
	tracing, err := o.tracing.Open(ctx, telemetry.Service{Name: "atoll-worker", Version: version.String(), ClusterID: o.clusterID}, log.WithName("traces"))
	if err != nil {
		return err
	}
	defer func() {
		if err := tracing.Close(); err != nil {
			log.Info("Traces were lost", "error", err.Error())
		}
	}()
	cfg, err := clusterConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	local, err := wallclock.New()
	if err != nil {
		return err
	}
	serverTime := apitime.New(local)
	serverTime.Watch(cfg)
	lock, err := lease.New(cfg, o.namespace, leaseName, o.peerAddress, renewDeadline, serverTime, log)
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	mgr, err := newManager(cfg, lock, log)
	if err != nil {
		return err
	}
	records, err := openHistory(ctx, o, local, serverTime, log)
	if err != nil {
		return err
	}
	// What ends comes to it until everything else has ended.
	defer func() {
		if err := records.Close(); err != nil {
			log.Error(err, "Closing the history")
		}
	}()
	var peers *history.Peers
	var elsewhere func() grpc.ClientConnInterface
	if o.peerListen != "" {
		if peers, err = addPeers(mgr, o, lock, records, local, log.WithName("history")); err != nil {
			return err
		}
		elsewhere = peers.Elsewhere
	}
	times, err := latency.New(metrics.Registry)
	if err != nil {
		return err
	}
	others, err := newForeignWatch(mgr, o, local, log)
	if err != nil {
		return err
	}
	activity := podtunnel.NewActivity(local)
	path, err := newClaimPath(mgr, claimPathOptions{
		inventory: inventory.Options{ClusterID: o.clusterID, Lease: lock, Time: serverTime, Clock: local},
		sandboxes: sandboxes.Options{History: records, Activity: []idle.LastActiveSource{activity}},
		claims:    claim.Options{QueueCapacity: o.queueCapacity, Latency: times},
	}, log)
	if err != nil {
		return err
	}
	tunnels, err := newReach(mgr, cfg, path.sandboxes, activity, lock, local, log)
	if err != nil {
		return err
	}
	gate, err := newAdmission(ctx, mgr, cfg, o, local, log)
	if err != nil {
		return err
	}
	contests := replicas.NewContests(local)
	scaler, err := newAutoscaler(ctx, mgr, o, path, contests, gate, others, local, serverTime)
	if err != nil {
		return err
	}
	envs, err := env.New(mgr, env.Options{
		ClusterID: o.clusterID, Namespace: o.namespace, Clock: serverTime, Admission: gate.chain, Contests: contests, Paused: others.Paused,
		NoPullSecrets: !o.pullSecrets, Leads: lock.Held, Registerer: metrics.Registry,
	})
	if err != nil {
		return fmt.Errorf("building the Env reconciler: %w", err)
	}
	worker, err := newAgent(ctx, mgr, cfg, o, path, scaler, envs, tunnels, others, local, tracing.Provider, log)
	if err != nil {
		return err
	}
	prepare, err := newHooks(mgr, cfg, path.sandboxes, lock, local, times, log)
	if err != nil {
		return err
	}
	shared := parts{envs, path, prepare, gate, others, times, serverTime}
	if err := addReconcilers(ctx, mgr, o, shared); err != nil {
		return err
	}
	front, err := localapi.New(localapi.Options{
		ClusterID: o.clusterID, Address: o.listen, Claims: path.claims, Sandboxes: path.sandboxes,
		Segments: worker, Envs: envs, Reach: tunnels, Elsewhere: elsewhere, Traces: tracing.Provider, Limits: o.limits, Web: o.web,
		Log: log.WithName("localapi"),
	})
	if err != nil {
		return fmt.Errorf("building the local API: %w", err)
	}
	if peers != nil {
		peers.Offer(front)
	}
	if err := mgr.Add(front); err != nil {
		return fmt.Errorf("adding the local API: %w", err)
	}
	if err := mgr.listen(ctx, o); err != nil {
		return err
	}
	log.Info("Starting", "version", version.String(), "hub", o.hub)
	if err := start(ctx, mgr, lock); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

// start runs the manager until ctx ends, or the lease lapses under it: the process has to end then, and the sooner it does
// the sooner another one leads.
func start(ctx context.Context, mgr ctrl.Manager, lock *lease.Lock) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-lock.Lapsed():
			cancel(lease.ErrLapsed)
		case <-ctx.Done():
		}
	}()
	err := mgr.Start(ctx)
	if errors.Is(context.Cause(ctx), lease.ErrLapsed) {
		return errors.Join(lease.ErrLapsed, err)
	}
	return err
}

func clusterConfig(kubeconfig string) (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if kubeconfig != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	} else {
		cfg, err = ctrl.GetConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("finding the cluster (--kubeconfig): %w", err)
	}
	// The API server's own fairness decides; a client-side limit would only add latency to a claim.
	cfg.QPS = -1
	cfg.UserAgent = "atoll-worker/" + version.String()
	return cfg, nil
}

func newManager(cfg *rest.Config, lock *lease.Lock, log logr.Logger) (*probed, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	inner, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                              scheme,
		Logger:                              log,
		Metrics:                             metricsserver.Options{BindAddress: off},
		HealthProbeBindAddress:              off,
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       duration(leaseDuration),
		RenewDeadline:                       duration(renewDeadline),
		RetryPeriod:                         duration(retryPeriod),
		Cache:                               cache.Options{ByObject: sandboxcache.ByObject()},
		// The worker's state is read when it counts, never from a cache.
		Client:    client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}}},
		NewClient: newClient,
		// One process may run several workers, one after the other in tests; names need not differ between managers.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	mgr := &probed{Manager: inner, live: map[string]healthz.Checker{}, ready: map[string]healthz.Checker{}}
	if err := sandboxcache.AddIndexes(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return nil, fmt.Errorf("preparing the cache: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the liveness check: %w", err)
	}
	err = mgr.AddReadyzCheck("caches", func(r *http.Request) error {
		// A follower is ready, too: it takes over when the leader is gone.
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("adding the readiness check: %w", err)
	}
	return mgr, nil
}

// newReach adds the way into sandboxes, for callers here and the hub's. Its OnShut comes before the inventory's Watch.
func newReach(
	mgr ctrl.Manager, cfg *rest.Config, sandboxes *sandboxes.Service, activity *podtunnel.Activity, lock *lease.Lock, local clock.WithTicker,
	log logr.Logger,
) (reach.Opener, error) {
	upstream, err := podtunnel.NewAPIServer(cfg)
	if err != nil {
		return nil, err
	}
	service, err := podtunnel.New(podtunnel.Options{
		Sandboxes: sandboxes, Activity: activity, Lease: lock, Upstream: upstream, Clock: local, Log: log.WithName("reach"),
	})
	if err != nil {
		return nil, fmt.Errorf("building the way into sandboxes: %w", err)
	}
	if err := mgr.Add(service); err != nil {
		return nil, fmt.Errorf("adding the way into sandboxes: %w", err)
	}
	measures, err := reach.NewMetrics(metrics.Registry, "atoll_worker")
	if err != nil {
		return nil, err
	}
	return measures.Measure(service), nil
}

// newAgent adds the link to the hub and the sync path that it feeds. Its OnChange comes before the inventory's Watch.
func newAgent(
	ctx context.Context, mgr ctrl.Manager, cfg *rest.Config, o options, path claimPath, scaler *autoscale.Reconciler, envs *env.Reconciler,
	tunnels reach.Opener, others *foreigncontroller.Watch,
	local clock.WithTicker, traces trace.TracerProvider, log logr.Logger,
) (*agent.Agent, error) {
	options := agent.Options{
		ClusterID: o.clusterID, Version: version.String(), Namespace: o.namespace,
		Claims: path.claims, Sandboxes: path.sandboxes, Inventory: path.inventory, Outlooks: scaler, Envs: envs, Reach: tunnels,
		Paused: others.PausedPool, OnPausedChange: others.OnChange,
		Clock: local, Traces: traces, Metrics: metrics.Registry, Log: log.WithName("agent"),
	}
	if o.hub != "" {
		if err := addHub(ctx, mgr, cfg, o, &options, log); err != nil {
			return nil, err
		}
	}
	a, err := agent.SetupWithManager(ctx, mgr, options)
	if err != nil {
		return nil, fmt.Errorf("adding the agent: %w", err)
	}
	if err := path.inventory.Watch(ctx, mgr.GetCache()); err != nil {
		return nil, fmt.Errorf("feeding the inventory: %w", err)
	}
	return a, nil
}

// +kubebuilder:rbac:groups="",namespace=atoll-system,resources=serviceaccounts/token,resourceNames=atoll-sync,verbs=create

// addHub takes on the sync path's identity, which the worker's may request.
func addHub(ctx context.Context, mgr ctrl.Manager, cfg *rest.Config, o options, options *agent.Options, log logr.Logger) error {
	credentials, err := link.LoadCredentials(o.tls, log.WithName("link"))
	if err != nil {
		return fmt.Errorf("loading the certificate for the hub: %w", err)
	}
	if identity, err := credentials.Identity(); err != nil || identity.ClusterID != o.clusterID {
		return fmt.Errorf("--tls-cert-file is a certificate of %s, not of --cluster-id %s: %w", identity, o.clusterID, errors.Join(err, link.ErrIdentity))
	}
	linkMetrics, err := link.NewMetrics(metrics.Registry)
	if err := errors.Join(err, credentials.Register(metrics.Registry)); err != nil {
		return fmt.Errorf("registering the link's metrics: %w", err)
	}
	options.Hub = link.Dial{
		Target: o.hub, ServerName: o.hubName, Credentials: credentials, Clock: options.Clock, Metrics: linkMetrics, Log: log.WithName("link"),
	}
	syncConfig, err := sync.Config(cfg, o.namespace, sync.ServiceAccount)
	if err != nil {
		return fmt.Errorf("taking on the sync path's identity: %w", err)
	}
	syncer, err := sync.New(ctx, sync.Options{
		ClusterID: o.clusterID, Config: syncConfig, Cache: mgr.GetCache(), Clock: options.Clock, Metrics: metrics.Registry, Log: log.WithName("sync"),
	})
	if err != nil {
		return fmt.Errorf("building the sync path: %w", err)
	}
	if err := mgr.Add(syncer); err != nil {
		return fmt.Errorf("adding the sync path: %w", err)
	}
	options.Foreign = syncer
	return nil
}

func duration(d time.Duration) *time.Duration { return &d }
