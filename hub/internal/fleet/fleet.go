// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/slots"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

const (
	protocolVersion = 1

	heartbeatInterval = 3 * time.Second
	lastChoiceAfter   = 15 * time.Second
	unreachableAfter  = 40 * time.Second
	recoverAfter      = 10 * time.Second
	livenessTick      = time.Second

	handful            = 5
	massRemovalPercent = 30
	maxTombstones      = 256 // of one cluster; the oldest are dropped first
	maxChunks          = 1024

	// State other than identity and incarnation (resourceVersion, tombstones) is saved at saveInterval.
	saveInterval = 30 * time.Second
	saveTimeout  = 5 * time.Second
	// State that a rotation of the CA waits for is saved after soonPause.
	soonPause = time.Second
)

// Options configure a Fleet. Clock and Registry are required.
type Options struct {
	Clock    clock.WithTicker
	Registry Registry
	HubID    string // the replica's name; unique among its peers
	Version  string // of the hub's build
	Log      logr.Logger
	Metrics  prometheus.Registerer // nil: none
	Limits   Limits
	// Allotments says that the hub divides maxReplicas over clusters. The Welcome tells workers.
	Allotments bool
	// Recovering reports whether the hub has lost claim keys that a cluster may hold. Nil means that it has not.
	Recovering func(clusterID string) bool
}

// Fleet is the merged view of all clusters.
type Fleet struct {
	clock    clock.WithTicker
	epoch    time.Time // origin of the monotonic durations
	registry Registry
	replica  string
	version  string
	log      logr.Logger
	metrics  *metrics
	recovers func(clusterID string) bool
	limits   Limits
	allots   bool

	soon     urgent
	revoked  sync.Map // *revocation by the name under which the certificates were revoked
	onRevoke atomic.Pointer[func()]
	onPeer   atomic.Pointer[func(clusterID string)]

	index  index
	merges chan struct{} // a slot for each large report that is being merged
	fulls  slots.Slots   // for complete foreign messages

	// clusters is replaced as a whole with grow held. Clusters are never removed: a forgotten cluster leaves an empty name.
	grow     sync.Mutex
	clusters atomic.Pointer[clusterSet]

	shares   shares
	relaying sync.Mutex // held while relays is written
	relays   atomic.Pointer[[]*Relay]

	enrolling sync.Mutex // taken after durable, before mu
	roster    atomic.Pointer[roster]
}

// New returns a Fleet with the clusters of the registry. They are unreachable until their workers attach.
func New(ctx context.Context, o Options) (*Fleet, error) {
	if o.Clock == nil || o.Registry == nil {
		return nil, errors.New("fleet: a clock and a registry are required")
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	f := &Fleet{
		clock: o.Clock, epoch: o.Clock.Now(), registry: o.Registry, replica: o.HubID, version: o.Version, limits: o.Limits.orDefaults(),
		allots: o.Allotments,
		log:    o.Log.WithValues("hub", o.HubID),
		soon:   urgent{wake: newToken(), clusters: map[*cluster]struct{}{}},
	}
	if f.recovers = o.Recovering; f.recovers == nil {
		f.recovers = func(string) bool { return false }
	}
	f.index.init()
	f.merges = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))
	f.fulls = foreignSlots(f.clock)
	f.clusters.Store(&clusterSet{byID: map[string]*cluster{}})
	records, err := o.Registry.Load(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		f.obtain(r.ClusterID).load(r)
	}
	f.enrol()
	if f.metrics, err = newMetrics(o.Metrics, f); err != nil {
		return nil, err
	}
	return f, nil
}

// Run evaluates liveness and saves records until ctx ends. Without Run the fleet serves views, but clusters never age.
func (f *Fleet) Run(ctx context.Context) error {
	var saver sync.WaitGroup
	saver.Go(func() { f.every(ctx, saveInterval, f.saveRecords) })
	saver.Go(func() { f.follow(ctx) })
	saver.Go(func() { f.saveSoon(ctx) })
	f.every(ctx, livenessTick, func(context.Context) {
		for _, c := range f.sorted() {
			c.evaluate()
		}
	})
	saver.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	f.saveRecords(last)
	return nil
}

func (f *Fleet) every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	ticker := f.clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			do(ctx)
		}
	}
}

func (f *Fleet) saveRecords(ctx context.Context) { f.saveThose(ctx, f.sorted()) }

func (f *Fleet) saveThose(ctx context.Context, clusters []*cluster) {
	for _, c := range clusters {
		if err := c.saveIfDirty(ctx); err != nil {
			f.log.Error(err, "Saving a cluster's record", "cluster", c.ID)
		}
	}
}

// now returns the time since the fleet's start on the monotonic clock. Steps of the wall clock do not affect it (I11).
func (f *Fleet) now() time.Duration { return f.clock.Since(f.epoch) }

// clusterSet is immutable.
type clusterSet struct {
	byID    map[string]*cluster
	byOrder []*cluster // of ids
}

func (f *Fleet) cluster(id string) *cluster { return f.clusters.Load().byID[id] }

// obtain returns the cluster with an id, and creates it if needed.
func (f *Fleet) obtain(id string) *cluster {
	if c := f.cluster(id); c != nil {
		return c
	}
	f.grow.Lock()
	defer f.grow.Unlock()
	if c := f.cluster(id); c != nil {
		return c
	}
	c, was := newCluster(f, id), f.clusters.Load()
	next := &clusterSet{byID: maps.Clone(was.byID)}
	next.byID[id] = c
	at, _ := slices.BinarySearchFunc(was.byOrder, id, func(c *cluster, id string) int { return strings.Compare(c.ID, id) })
	next.byOrder = slices.Insert(slices.Clone(was.byOrder), at, c)
	f.clusters.Store(next)
	return c
}

// sorted returns the clusters ordered by id. Callers must not change the list.
func (f *Fleet) sorted() []*cluster { return f.clusters.Load().byOrder }

// View returns the router's view of an Env, or nil if no cluster has the Env. It takes no lock and allocates nothing.
func (f *Fleet) View(key segment.Key) *router.View { return f.index.view(key) }

// Explain evaluates every candidate of a view by the fleet's clock.
func (f *Fleet) Explain(req *router.Request, view *router.View) router.Explanation {
	return router.Explain(req, view, f.now())
}
