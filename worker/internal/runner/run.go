// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/version"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/pkg/watch"
	"navix.sh/atoll/worker/internal/agent"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/autoscale"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/env"
	"navix.sh/atoll/worker/internal/foreigncontroller"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/latency"
	"navix.sh/atoll/worker/internal/lease"
	"navix.sh/atoll/worker/internal/localapi"
	"navix.sh/atoll/worker/internal/podtunnel"
	"navix.sh/atoll/worker/internal/replicas"
	"navix.sh/atoll/worker/internal/rooms"
	"navix.sh/atoll/worker/internal/sandboxes"
	"navix.sh/atoll/worker/internal/secretenv"
)

// Leader election is configured as in Kubernetes' own controllers, except that followers try eight times as often, because the cluster has
// no leader during a handover. Package lease avoids the extra renewals, and writes shorter leases while the API server is fast.
const (
	leaseName     = "atoll-worker"
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 250 * time.Millisecond
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=atoll-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=atoll-system,resources=leases,resourceNames=atoll-worker,verbs=get;update

// Worker is a worker of one cluster.
type Worker struct {
	cfg     *rest.Config
	options Options
	log     logr.Logger
}

// New returns a worker of the cluster.
func New(cluster *rest.Config, o Options, log logr.Logger) *Worker {
	cfg := rest.CopyConfig(cluster)
	// The API server's own fairness decides. A client-side limit would only add latency to a claim.
	cfg.QPS = -1
	cfg.UserAgent = "atoll-worker/" + version.String()
	return &Worker{cfg: cfg, options: o, log: log.WithValues("cluster", o.clusterID)}
}

// assembly is a worker while Run builds it. Each step uses what the earlier ones have set.
type assembly struct {
	Options
	observed
	cfg *rest.Config

	local      clock.WithTicker
	serverTime *apitime.Clock
	lock       *lease.Lock
	mgr        *probed
	latency    *latency.Recorder

	historyParts
	others   *foreigncontroller.Watch
	path     claimPath
	tunnels  reach.Opener
	gate     gate
	contests *replicas.Contests
	rooms    *rooms.Rooms
	scaler   *autoscale.Reconciler
	envs     *env.Reconciler
	agent    *agent.Agent
	issued   issued
}

// observed holds the logger, tracer and registry of a worker's parts.
type observed struct {
	log      logr.Logger
	traces   trace.TracerProvider
	registry prometheus.Registerer
}

// historyParts are the parts that handle the records of ended sandboxes.
type historyParts struct {
	records  *history.History
	rotation *store.Rotation // nil if the history is not encrypted
	peers    *history.Peers  // nil without --peer-listen
}

// Run builds the worker and runs it until ctx ends. It may be called again after it has returned.
func (r *Worker) Run(ctx context.Context) error {
	o, log := r.options, r.log
	ctx = logr.NewContext(ctx, log)
	service := telemetry.Service{Name: "atoll-worker", Version: version.String(), ClusterID: o.clusterID}
	tracing, err := o.tracing.Open(ctx, service, log.WithName("traces"))
	if err != nil {
		return err
	}
	defer func() {
		if err := tracing.Close(); err != nil {
			log.Info("Traces were lost", "error", err.Error())
		}
	}()
	w := &assembly{Options: o, cfg: r.cfg, observed: observed{log: log, traces: tracing.Provider, registry: metrics.Registry}}
	if o.hosted != nil {
		w.registry = prometheus.WrapRegistererWith(prometheus.Labels{"cluster": o.clusterID}, o.hosted.Metrics)
	}
	if err := w.prepare(); err != nil {
		return err
	}
	if w.records, w.rotation, err = openHistory(ctx, o, w.registry, w.local, w.serverTime, log); err != nil {
		return err
	}
	// Ended sandboxes are recorded until everything else has stopped.
	defer func() {
		if err := w.records.Close(); err != nil {
			log.Error(err, "Closing the history")
		}
	}()
	for _, add := range []func(context.Context) error{
		w.addRotation,    // of the history's keys
		w.addIdentity,    // before all parts that show a certificate
		w.addPeers,       // copies of the history, for the local API to read
		w.addForeign,     // before all parts that ask whether another controller manages an object
		w.addClaimPath,   // inventory, sandboxes and claims, with the tunnels; OnShut precedes the inventory's Watch
		w.addAdmission,   // before all parts that ask it
		w.addAutoscaler,  // passes its outlook to the claims before they are served
		w.buildEnvs,      // for the agent to call; its controller is added with the others
		w.addAgent,       // OnChange precedes the inventory's Watch
		w.feedInventory,  // after every OnShut and OnChange
		w.addReconcilers, // Envs, templates and pools, and the hooks that pools run
		w.addLocalAPI,    // last: it serves the parts above
	} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	if err := w.mgr.listen(ctx, o.listen, metrics.Registry); err != nil {
		return err
	}
	log.Info("Starting", "version", version.String(), "hub", o.hub.address)
	if err := start(ctx, w.mgr, w.lock); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

// prepare sets up the cluster, the clocks and the lease, and creates the manager.
func (w *assembly) prepare() (err error) {
	if w.local, err = wallclock.New(); err != nil {
		return err
	}
	w.serverTime = apitime.New(w.local)
	w.serverTime.Watch(w.cfg)
	w.lock, err = lease.New(lease.Options{
		Config: w.cfg, Namespace: w.namespace, Name: leaseName, Address: w.history.peerAddress,
		RenewDeadline: renewDeadline, Clocks: w.serverTime, Log: w.log,
	})
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	if w.mgr, err = newManager(w.cfg, w.namespaces, w.lock, w.log); err != nil {
		return err
	}
	w.latency, err = latency.New(w.registry)
	return err
}

// addClaimPath adds the claim path and the tunnels into sandboxes.
func (w *assembly) addClaimPath(context.Context) (err error) {
	activity := podtunnel.NewActivity(w.local)
	secrets, err := w.sandboxSecrets()
	if err != nil {
		return err
	}
	w.path, err = newClaimPath(w.mgr, claimPathOptions{
		inventory: inventory.Options{ClusterID: w.clusterID, Namespaces: w.namespaces, Lease: w.lock, Time: w.serverTime, Clock: w.local},
		sandboxes: sandboxes.Options{History: w.records, Metrics: w.registry, Activity: []idle.LastActiveSource{activity},
			Paused: w.others.PausedPool},
		claims: claim.Options{QueueCapacity: w.pools.queueCapacity, Latency: w.latency, Metrics: w.registry, Secrets: secrets,
			DeniesEgress: w.network.on()},
	}, w.log)
	if err != nil {
		return err
	}
	w.tunnels, err = w.addTunnels(activity, secrets)
	return err
}

// sandboxSecrets returns the Secrets that claims may refer to.
func (w *assembly) sandboxSecrets() (*secretenv.Source, error) {
	rules, err := secretenv.ParseRules(w.pools.sandboxSecrets)
	if err != nil {
		return nil, fmt.Errorf("reading --sandbox-secrets: %w", err)
	}
	cluster, err := hooks.NewCluster(w.cfg)
	if err != nil {
		return nil, err
	}
	return secretenv.New(rules, cluster), nil
}

func (w *assembly) feedInventory(ctx context.Context) error {
	if err := w.path.inventory.Watch(ctx, w.mgr.GetCache()); err != nil {
		return fmt.Errorf("feeding the inventory: %w", err)
	}
	return nil
}

func (w *assembly) addLocalAPI(ctx context.Context) error {
	if w.hosted != nil {
		return nil
	}
	watches, err := watch.NewMetrics(w.registry, "atoll_worker")
	if err != nil {
		return err
	}
	w.watches.Patience = w.limits.BodyTimeout
	opts := localapi.Options{
		ClusterID: w.clusterID, Address: w.listen.api, Claims: w.path.claims, Sandboxes: w.path.sandboxes,
		Segments: w.agent, Envs: w.envs, Reach: w.tunnels, Traces: w.traces, Limits: w.limits, Web: w.web,
		Watches:           watch.Options{Limits: w.watches, Metrics: watches},
		RefuseCredentials: w.pools.refuseCredentials, Log: w.log.WithName("localapi"),
	}
	opts.Environment = opts.NewEnvironment(w.listen.e2b.DaemonKey(w.history.dir, w.peers != nil))
	if w.peers != nil {
		opts.Elsewhere = w.peers.Elsewhere
	}
	if err := w.guard(&opts); err != nil {
		return err
	}
	if opts.Audit, err = w.openAudit(ctx); err != nil {
		return err
	}
	front, err := localapi.New(opts)
	if err != nil {
		return fmt.Errorf("building the local API: %w", err)
	}
	if w.peers != nil {
		w.peers.Offer(front)
	}
	if err := w.mgr.Add(front); err != nil {
		return fmt.Errorf("adding the local API: %w", err)
	}
	return w.addE2B(front, opts.TLS)
}

// start runs the manager until ctx ends, or until the lease lapses. Then the process must end as soon as possible, so that another one can
// lead.
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

// Cluster returns the configuration of the cluster that the flags name.
func (o *Options) Cluster() (cfg *rest.Config, err error) {
	if o.kubeconfig != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	} else {
		cfg, err = ctrl.GetConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("finding the cluster (--kubeconfig): %w", err)
	}
	return cfg, nil
}

// Logger returns the logger that the flags describe.
func (o *Options) Logger(to io.Writer) (logr.Logger, error) { return o.logging.Logger(to) }
