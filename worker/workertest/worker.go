// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/worker/internal/agent"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/lease"
	"navix.sh/atoll/worker/internal/sandboxes"
	foreign "navix.sh/atoll/worker/internal/sync"
)

const (
	systemNamespace = "atoll-system"
	leaseName       = "atoll-worker"
	leaseDuration   = 15 * time.Second
	renewDeadline   = 10 * time.Second
	retryPeriod     = time.Second
)

// Options are a worker process's settings.
type Options struct {
	Name  string // of the process
	Clock clock.WithTicker
	Hub   link.Dial
	Disk  store.Store // of its history, used by one process at a time; nil is in memory
	Log   logr.Logger
}

// disk is a store that outlives the processes that use it.
type disk struct{ store.Store }

func (disk) Close() error { return nil }

// process is a running worker process, wired as in worker/internal/runner/run.go.
type process struct {
	name      string
	log       logr.Logger
	cluster   *Cluster
	wire      *wire
	client    client.Client
	informers *informers
	times     *apitime.Clock
	history   *history.History
	inventory *inventory.Inventory
	sandboxes *sandboxes.Service
	claims    *claim.Service
	agent     *agent.Agent
	foreign   *foreign.Listener
	lock      *lease.Lock
	pools     *reconciler
}

// Worker is a worker process of a cluster.
type Worker struct {
	*process
	part    context.CancelFunc // begins the orderly end
	stop    context.CancelFunc // ends leading
	end     context.CancelFunc // ends everything
	ended   chan struct{}
	leading context.Context
	parts   sync.WaitGroup // of leading

	mu    sync.Mutex
	leads bool
}

// reportSize splits reports of a few Envs into several chunks.
const reportSize = 2 << 10

// StartWorker starts a worker process. It leads when it has the lease, and ends permanently when it has lost it.
func (c *Cluster) StartWorker(o Options) (*Worker, error) {
	p := &process{name: o.Name, log: o.Log, cluster: c, wire: c.connect(), times: apitime.NewOn(c.machine(), o.Clock)}
	if err := p.build(o); err != nil {
		return nil, fmt.Errorf("building worker %s: %w", o.Name, err)
	}
	w := &Worker{process: p, ended: make(chan struct{})}
	ctx, end := context.WithCancel(context.Background())
	electing, resign := context.WithCancel(ctx)
	var parting context.Context
	parting, w.part = context.WithCancel(ctx)
	w.leading, w.stop = context.WithCancel(ctx)
	w.end = end
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: p.lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { w.lead() }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		resign()
		end()
		return nil, fmt.Errorf("building the elector of worker %s: %w", o.Name, err)
	}
	go func() {
		defer close(w.ended)
		defer end()
		var beside sync.WaitGroup
		beside.Go(func() { w.fail("informers", w.informers.Start(ctx)) })
		beside.Go(func() {
			w.fail("shutdown", w.agent.Shutdown().Start(parting))
			w.resign()
			resign()
		})
		elector.Run(electing) // until the lease is lost or released
		w.resign()
		end()
		beside.Wait()
		w.fail("history", w.history.Close())
	}()
	return w, nil
}

// machine returns the same machine for all workers of a cluster, so that the next process can rely on the times in its predecessor's lease.
func (c *Cluster) machine() apitime.Machine {
	return apitime.Machine{Boot: c.ID, Up: func() time.Duration { return time.Since(time.Unix(0, 0)) }}
}

func (p *process) build(o Options) error {
	cfg := p.wire.config()
	p.times.Watch(cfg)
	var err error
	if p.client, err = client.New(cfg, client.Options{Scheme: scheme(), Mapper: mapper()}); err != nil {
		return err
	}
	leases, err := coordinationclient.NewForConfig(cfg)
	if err != nil {
		return err
	}
	p.lock = lease.WrapWith(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: systemNamespace, Name: leaseName},
		Client:     lease.WithHandover(leases, p.times, o.Log),
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.Name},
	}, p.cluster.machine().Up)
	pods, err := inventory.NewClient(cfg)
	if err != nil {
		return err
	}
	if o.Disk == nil {
		o.Disk = store.NewMemory()
	}
	p.history, err = history.Open(context.Background(), history.Options{Store: disk{o.Disk}, Time: p.times, Clock: o.Clock, Log: o.Log})
	if err != nil {
		return err
	}
	p.inventory, err = inventory.New(inventory.Options{
		ClusterID: p.cluster.ID, Client: pods, Lease: p.lock, Time: p.times, Clock: o.Clock, Log: o.Log.WithName("inventory"),
	})
	if err != nil {
		return err
	}
	p.sandboxes, err = sandboxes.New(p.inventory, sandboxes.Options{History: p.history, Log: o.Log.WithName("sandboxes")})
	if err != nil {
		return err
	}
	if p.claims, err = claim.New(p.inventory, p.sandboxes, claim.Options{Log: o.Log.WithName("claim")}); err != nil {
		return err
	}
	if p.informers, err = newInformers(p.wire); err != nil {
		return err
	}
	p.foreign = foreign.NewListener(o.Clock)
	p.agent = agent.New(cached{p.client, p.informers}, p.client, p.informers, agent.Options{
		ClusterID: p.cluster.ID, Version: "sim", Namespace: systemNamespace, Hub: o.Hub, Foreign: p.foreign,
		Services: agent.Services{Claims: p.claims, Sandboxes: p.sandboxes}, Inventory: p.inventory,
		ReportSize: reportSize, Clock: o.Clock, Log: o.Log.WithName("agent"),
	})
	// The agent's handlers precede the inventory's; see worker/internal/runner/run.go.
	if err := p.agent.Watch(context.Background(), p.informers); err != nil {
		return err
	}
	if err := p.inventory.Watch(context.Background(), p.informers); err != nil {
		return err
	}
	p.pools, err = newReconciler(p)
	return err
}

// lead runs the leader's parts.
func (w *Worker) lead() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leading.Err() != nil {
		return
	}
	w.leads = true
	w.parts.Go(func() { w.fail("claims", w.inventory.Start(w.leading)) })
	w.parts.Go(func() { w.fail("agent", w.agent.Start(w.leading)) })
	w.parts.Go(func() { w.pools.run(w.leading) })
}

// fail ends the process after a part of it has failed, as the manager does.
func (w *Worker) fail(part string, err error) {
	if err == nil {
		return
	}
	w.log.Error(err, "a part of the worker failed", "worker", w.name, "part", part)
	w.part()
}

// resign ends leading, and waits until that is done.
func (w *Worker) resign() {
	w.mu.Lock()
	w.leads = false
	w.stop()
	w.mu.Unlock()
	w.parts.Wait()
}

// Stop shuts the process down: it leaves the hub, completes its work and releases the lease.
func (w *Worker) Stop() {
	w.part()
	<-w.ended
}

// Kill ends the process abruptly, as seen from outside. Cut its connections to the hub first. Requests that it had sent still arrive at the
// API server.
func (w *Worker) Kill() {
	w.wire.sever()
	w.end()
}

// Ended is closed when the process has ended.
func (w *Worker) Ended() <-chan struct{} { return w.ended }

// Serving reports whether the process leads and serves claims.
func (w *Worker) Serving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leads && w.inventory.Serving()
}

// Connected reports whether the hub accepts this process's reports.
func (w *Worker) Connected() bool { return w.agent.Connected() }

// InFlight returns the number of claims and sandbox actions in progress in the process.
func (w *Worker) InFlight() int { return w.claims.InFlight() + w.sandboxes.InFlight() }

// Segments returns the process's view of its own Envs.
func (w *Worker) Segments(ctx context.Context) ([]*segment.Segment, error) {
	return w.agent.Segments(ctx)
}

// Foreign returns what the process received about an Env's other clusters.
func (w *Worker) Foreign(k segment.Key) map[string][]segment.Member { return w.foreign.Members(k) }
