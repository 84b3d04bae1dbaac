// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/latency"
	"navix.sh/atoll/worker/internal/memory"
	"navix.sh/atoll/worker/internal/sandboxes"
	"navix.sh/atoll/worker/internal/secretenv"
)

const (
	// DefaultQueueCapacity is how many claims may wait for one pool.
	DefaultQueueCapacity = 8192

	// These bound the memory of claim keys.
	keyMemory = 10 * time.Minute
	maxKeys   = 100_000
)

// Options configure a Service.
type Options struct {
	QueueCapacity int32             // maximum claims waiting for one pool; 0 is DefaultQueueCapacity
	Latency       *latency.Recorder // nil records nothing
	// Secrets are those that claims may refer to; nil means none.
	Secrets *secretenv.Source
	// DeniesEgress reports whether the network policies of pools can close the network of one sandbox.
	DeniesEgress bool
	Metrics      prometheus.Registerer
	Log          logr.Logger
}

// Service assigns Pods to claims. Its methods are safe for concurrent use.
type Service struct {
	opts      Options
	inventory *inventory.Inventory
	sandboxes *sandboxes.Service
	clusterID string
	time      *apitime.Clock
	clock     clock.Clock
	metrics   *metrics
	writes    *writes
	guarded   inventory.Guarded[shared]
}

// New returns a Service on an inventory. The inventory runs it.
func New(i *inventory.Inventory, sb *sandboxes.Service, opts Options) (*Service, error) {
	if opts.QueueCapacity <= 0 {
		opts.QueueCapacity = DefaultQueueCapacity
	}
	m, err := newMetrics(opts.Metrics)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	s := &Service{
		opts: opts, inventory: i, sandboxes: sb, clusterID: i.ClusterID(), time: i.Time(), clock: i.Clock(), metrics: m,
		writes: newWrites(i.Clock()),
		guarded: inventory.Guard(shared{
			queues: map[types.NamespacedName]*queue{}, ops: map[string]*op{}, unjudged: map[string]struct{}{},
			refused: memory.New[refusal](keyMemory, maxKeys, nil), unclear: memory.New[string](keyMemory, maxKeys, nil),
		}),
	}
	if err := s.registerGauges(opts.Metrics); err != nil {
		return nil, err
	}
	i.Observe(inventory.Observer{
		Pod: func(st *inventory.State, c inventory.Change) {
			if c.Kind != inventory.Unpooled {
				s.in(st).seen(&c)
			}
		},
		Pool: func(st *inventory.State, p *inventory.Pool) { s.in(st).serve(p) },
	})
	return s, nil
}

// InFlight returns how many claims with a key are under way (I10).
func (s *Service) InFlight() (n int) {
	s.view(func(_ *inventory.View, shared *shared) { n = len(shared.ops) })
	return n
}

// Stats are the current numbers of a pool.
type Stats struct {
	ReadyIdle    int32 // Pods that can be claimed now
	Claiming     int32 // calls of the hub whose claims have a Pod
	Waiting      int32 // claims in the queue
	WaitCapacity int32 // claims that may be in the queue
	// LastCreate is when a sandbox was last requested, by the service's Clock. It is zero if this process got no request.
	LastCreate time.Time
}

// Stats returns the numbers of a pool. ok is false for an unknown pool.
func (s *Service) Stats(key types.NamespacedName) (stats Stats, ok bool) {
	s.view(func(v *inventory.View, shared *shared) {
		p := v.Pool(key)
		if ok = p != nil && p.Spec() != nil; !ok {
			return
		}
		stats = Stats{ReadyIdle: int32(p.Idle()), WaitCapacity: s.opts.QueueCapacity}
		if q := shared.queues[key]; q != nil {
			stats.Waiting, stats.Claiming, stats.LastCreate = int32(q.len()), q.claiming, q.asked
		}
	})
	return stats, ok
}

// Waiting returns the length of a pool's queue.
func (s *Service) Waiting(pool types.NamespacedName) int32 {
	stats, _ := s.Stats(pool)
	return stats.Waiting
}

// OnQueue registers f, which is called when a pool's queue gets its first claim or loses its last, and must not block.
func (s *Service) OnQueue(f func(pool types.NamespacedName)) {
	s.update(func(l locked) { l.onQueue = append(l.onQueue, f) })
}

// SetOutlook sets the function that returns the autoscaler's outlook on a pool. f must not block or take the service's locks.
func (s *Service) SetOutlook(f func(pool types.NamespacedName) (canGrow bool, saturated time.Duration)) {
	s.update(func(l locked) { l.outlook = f })
}
