// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// DefaultInterval is the interval at which the hub's clusters are listed.
	DefaultInterval = 3 * time.Second

	callTimeout = 10 * time.Second
	firstRetry  = time.Second
	lastRetry   = time.Minute
)

// Options configure a Provider.
type Options struct {
	Hub sandboxv1.ClustersClient
	// Config returns the configuration for a cluster's API server, which includes the permissions.
	Config func(ctx context.Context, id string) (*rest.Config, error)
	// Select reports whether this controller handles a cluster; nil: it handles all.
	Select   func(*sandboxv1.Cluster) bool
	Cluster  []cluster.Option
	Interval time.Duration // 0: DefaultInterval
	Log      logr.Logger
}

// Provider engages the clusters of a hub.
type Provider struct {
	opts    Options
	running sync.WaitGroup

	mu      sync.Mutex
	engaged map[string]*member
	indexes []index
}

// member is a cluster that is engaged or being engaged.
type member struct {
	uid     string
	cancel  context.CancelFunc
	done    chan struct{}
	cluster cluster.Cluster // nil: it has not responded yet
}

type index struct {
	object  client.Object
	field   string
	extract client.IndexerFunc
}

var (
	_ multicluster.Provider         = &Provider{}
	_ multicluster.ProviderRunnable = &Provider{}
)

// New returns a Provider without clusters.
func New(o Options) (*Provider, error) {
	if o.Hub == nil || o.Config == nil {
		return nil, errors.New("a provider of clusters needs Hub and Config")
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	return &Provider{opts: o, engaged: map[string]*member{}}, nil
}

// Start implements multicluster.ProviderRunnable.
func (p *Provider) Start(ctx context.Context, aware multicluster.Aware) error {
	defer p.running.Wait()
	ticker := time.NewTicker(p.opts.Interval)
	defer ticker.Stop()
	for {
		if err := p.round(ctx, aware); err != nil && ctx.Err() == nil {
			p.opts.Log.Error(err, "Cannot list the hub's clusters; keeping those that are engaged")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// round applies the hub's current list of clusters.
func (p *Provider) round(ctx context.Context, aware multicluster.Aware) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := p.opts.Hub.ListClusters(call, &sandboxv1.ListClustersRequest{})
	if err != nil {
		return err
	}
	var listed []*sandboxv1.Cluster
	for _, c := range list.GetClusters() {
		if p.opts.Select == nil || p.opts.Select(c) {
			listed = append(listed, c)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	uids := map[string]string{}
	for id, m := range p.engaged {
		uids[id] = m.uid
	}
	begin, end := decide(uids, listed)
	before := map[string]*member{}
	for _, id := range end {
		p.opts.Log.Info("A cluster is disengaged", "cluster", id)
		before[id] = p.engaged[id]
		before[id].cancel()
		delete(p.engaged, id)
	}
	for _, c := range begin {
		own, cancel := context.WithCancel(ctx)
		m := &member{uid: c.GetUid(), cancel: cancel, done: make(chan struct{})}
		p.engaged[c.GetId()] = m
		last := before[c.GetId()]
		p.running.Go(func() {
			defer close(m.done)
			defer cancel()
			if last != nil {
				<-last.done
			}
			p.serve(own, aware, c.GetId(), m)
		})
	}
	return nil
}

// serve retries until the cluster is engaged, and runs its caches until it is disengaged.
func (p *Provider) serve(ctx context.Context, aware multicluster.Aware, id string, m *member) {
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, lastRetry) {
		err := p.attempt(ctx, aware, id, m)
		if ctx.Err() != nil {
			return
		}
		p.opts.Log.Error(err, "A cluster is not engaged", "cluster", id, "retryIn", pause.String())
		_ = wallclock.Sleep(ctx, clock.RealClock{}, pause)
	}
}

func (p *Provider) attempt(ctx context.Context, aware multicluster.Aware, id string, m *member) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	call, end := context.WithTimeout(ctx, callTimeout)
	defer end()
	cfg, err := p.opts.Config(call, id)
	if err != nil {
		return fmt.Errorf("finding the way to the cluster: %w", err)
	}
	cl, err := cluster.New(cfg, p.opts.Cluster...)
	if err != nil {
		return fmt.Errorf("building the cluster: %w", err)
	}
	defer utilnet.CloseIdleConnectionsFor(cl.GetHTTPClient().Transport)
	if err := responds(call, cl); err != nil {
		return err
	}
	ended := make(chan error, 1)
	// The deferred calls run in reverse order: cancel first, then wait for the caches to end.
	defer func() { <-ended }()
	defer cancel()
	if err := p.index(ctx, m, cl); err != nil {
		ended <- nil
		return err
	}
	defer func() {
		p.mu.Lock()
		m.cluster = nil
		p.mu.Unlock()
	}()
	go func() { ended <- cl.Start(ctx) }()
	if !cl.GetCache().WaitForCacheSync(call) {
		return errors.New("the caches are not filled")
	}
	if err := aware.Engage(ctx, multicluster.ClusterName(id), cl); err != nil {
		return fmt.Errorf("engaging: %w", err)
	}
	p.opts.Log.Info("A cluster is engaged", "cluster", id)
	err = <-ended
	ended <- err
	return err
}

// index adds all indexes to a cluster, and then makes it the member's. It does not hold the lock while it adds them, because the cluster's
// API server is asked for the resource of an index, and may be silent.
func (p *Provider) index(ctx context.Context, m *member, cl cluster.Cluster) error {
	for added := 0; ; {
		p.mu.Lock()
		more := p.indexes[added:]
		if len(more) == 0 {
			m.cluster = cl
		}
		p.mu.Unlock()
		if len(more) == 0 {
			return nil
		}
		for _, i := range more {
			if err := cl.GetFieldIndexer().IndexField(ctx, i.object, i.field, i.extract); err != nil {
				return fmt.Errorf("indexing %s: %w", i.field, err)
			}
		}
		added += len(more)
	}
}

// responds reads the version, which requires no permissions.
func responds(ctx context.Context, cl cluster.Cluster) error {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(cl.GetConfig(), cl.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("building the client: %w", err)
	}
	if _, err := d.RESTClient().Get().AbsPath("/version").DoRaw(ctx); err != nil {
		return fmt.Errorf("asking the API server for its version: %w", err)
	}
	return nil
}

// Get implements multicluster.Provider.
func (p *Provider) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.engaged[name.String()]; m != nil && m.cluster != nil {
		return m.cluster, nil
	}
	return nil, multicluster.ErrClusterNotFound
}

// IndexField implements multicluster.Provider.
func (p *Provider) IndexField(ctx context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	there := map[string]cluster.Cluster{}
	p.mu.Lock()
	p.indexes = append(p.indexes, index{object, field, extract})
	for id, m := range p.engaged {
		if m.cluster != nil {
			there[id] = m.cluster
		}
	}
	p.mu.Unlock()
	var errs []error
	for id, cl := range there {
		if err := cl.GetFieldIndexer().IndexField(ctx, object, field, extract); err != nil {
			errs = append(errs, fmt.Errorf("indexing %s of %s: %w", field, id, err))
		}
	}
	return errors.Join(errs...)
}
