// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/runner"
)

const (
	// MaxClusters is the maximum number of clusters of one process. More are refused, and retried.
	MaxClusters = 200

	identifyTimeout = 10 * time.Second
	firstRetry      = time.Second
	lastRetry       = time.Minute
	// settled is how long a worker must run before its next failure counts as the first.
	settled = 5 * time.Minute
)

// Options configure a Host. Identify and Share may be nil.
type Options struct {
	Worker runner.Options
	Self   string // the name of this process's host, as the hub shows it
	// Identify returns the cluster id for a provider's name. If it is nil, the id is the name.
	Identify func(ctx context.Context, name string) (string, error)
	// Identities accesses the certificates. If it is nil, they are in the worker's --identity-dir.
	Identities client.Client
	Share      *Share // nil if this process runs all clusters
	Clock      clock.WithTicker
	Log        logr.Logger
}

// Host runs a worker for each engaged cluster.
type Host struct {
	opts    Options
	ctx     context.Context // ends all workers
	end     context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	engaged  map[multicluster.ClusterName]*engagement
	owners   map[string]*engagement // by cluster id
	gathered map[string]*prometheus.Registry
}

// engagement is one call of Engage.
type engagement struct {
	name    multicluster.ClusterName
	cluster cluster.Cluster
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	before  *engagement // the previous one of the same name
}

// New returns a Host without clusters.
func New(o Options) *Host {
	h := &Host{opts: o, engaged: map[multicluster.ClusterName]*engagement{}, owners: map[string]*engagement{},
		gathered: map[string]*prometheus.Registry{}}
	h.ctx, h.end = context.WithCancel(logr.NewContext(context.Background(), o.Log))
	return h
}

// Close ends all workers and waits for them.
func (h *Host) Close() {
	h.mu.Lock()
	h.end()
	h.mu.Unlock()
	h.running.Wait()
}

// Engage implements multicluster.Aware. It returns immediately and never an error, because a provider or a manager would end for all
// clusters with it.
func (h *Host) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.engaged[name]
	if h.ctx.Err() != nil || before != nil && before.cluster == cl && before.ctx.Err() == nil {
		return nil
	}
	e := &engagement{name: name, cluster: cl, done: make(chan struct{}), before: before}
	e.ctx, e.cancel = context.WithCancel(logr.NewContext(ctx, h.opts.Log))
	stop := context.AfterFunc(h.ctx, e.cancel)
	if before != nil {
		before.cancel()
	}
	h.engaged[name] = e
	h.running.Add(1)
	go func() {
		defer h.running.Done()
		defer close(e.done)
		defer stop()
		defer e.cancel()
		if e.before != nil {
			// Two workers of one cluster would share a history file and a certificate.
			<-e.before.done
			e.before = nil
		}
		h.serve(e)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.engaged[name] == e {
			delete(h.engaged, name)
		}
	}()
	return nil
}

// serve retries until the engagement ends.
func (h *Host) serve(e *engagement) {
	log := h.opts.Log.WithValues("engaged", e.name.String())
	pause := firstRetry
	for e.ctx.Err() == nil {
		began := h.opts.Clock.Now()
		err := h.attempt(e)
		if e.ctx.Err() != nil {
			break
		}
		if h.opts.Clock.Since(began) >= settled {
			pause = firstRetry
		}
		if err != nil {
			log.Error(err, "A cluster is not served", "retryIn", pause.String())
		}
		_ = wallclock.Sleep(e.ctx, h.opts.Clock, pause/2+rand.N(pause/2)) //nolint:gosec // jitter is no secret
		if err != nil {
			pause = min(2*pause, lastRetry)
		}
	}
	log.Info("A cluster is no longer engaged")
}

// attempt runs the worker of a cluster until it fails, the engagement ends, or another replica takes the cluster.
func (h *Host) attempt(e *engagement) error {
	id, err := h.identify(e)
	if err != nil {
		return err
	}
	if err := h.own(id, e); err != nil {
		return err
	}
	defer h.disown(id, e)
	ctx := e.ctx
	if h.opts.Share != nil {
		tenure, release, err := h.opts.Share.Hold(ctx, id)
		if err != nil {
			return err
		}
		defer release()
		ctx = tenure
	}
	registry := prometheus.NewRegistry()
	h.gather(id, registry)
	defer h.gather(id, nil)
	options := h.opts.Worker.ForCluster(runner.Hosted{ClusterID: id, Host: h.opts.Self, Metrics: registry, Identities: h.opts.Identities})
	err = runner.New(e.cluster.GetConfig(), options, h.opts.Log).Run(ctx)
	if ctx.Err() != nil && e.ctx.Err() == nil {
		return nil // another replica has the cluster
	}
	return err
}

func (h *Host) identify(e *engagement) (string, error) {
	id := e.name.String()
	if h.opts.Identify != nil {
		ctx, cancel := context.WithTimeout(e.ctx, identifyTimeout)
		defer cancel()
		var err error
		if id, err = h.opts.Identify(ctx, e.name.String()); err != nil {
			return "", fmt.Errorf("finding the cluster id of %s: %w", e.name, err)
		}
	}
	return id, runner.CheckClusterID(id)
}

var (
	errTaken = errors.New("the cluster id is in use")
	errMany  = errors.New("too many clusters")
)

// own assigns a cluster id to an engagement.
func (h *Host) own(id string, e *engagement) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if other := h.owners[id]; other != nil && other != e {
		return fmt.Errorf("%w: %s has it by the name %s; want another label or name", errTaken, id, other.name)
	}
	if len(h.owners) >= MaxClusters {
		return fmt.Errorf("%w: this process has %d, want them spread over more processes with providers of their own", errMany, MaxClusters)
	}
	h.owners[id] = e
	return nil
}

func (h *Host) disown(id string, e *engagement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owners[id] == e {
		delete(h.owners, id)
	}
}

// gather adds a worker's metrics to those of the process. A nil registry removes them.
func (h *Host) gather(id string, registry *prometheus.Registry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if registry == nil {
		delete(h.gathered, id)
		return
	}
	h.gathered[id] = registry
}

// Gather implements prometheus.Gatherer. It returns the process's metrics and those of each worker.
func (h *Host) Gather() ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{metrics.Registry}
	h.mu.Lock()
	for _, registry := range h.gathered {
		all = append(all, registry)
	}
	h.mu.Unlock()
	return all.Gather()
}
