// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

// Fleet is what the hub knows of its clusters.
type Fleet interface {
	// View returns the router's view of an Env, nil for an unknown one.
	View(key segment.Key) *router.View
	// UnknownEnv returns the error about an Env that no cluster has.
	UnknownEnv(namespace, name string) error
	// ClusterIDs lists every registered cluster, connected or not.
	ClusterIDs() []string
	// Awaited lists the registered clusters that a hub which has just started still waits to hear from.
	Awaited() []string
	// Registration tells which cluster has a name now, by its uid; empty: none.
	Registration(clusterID string) string
	// Forgotten reports whether an operator has forgotten the cluster that had a name and uid. Where the uid is not known
	// it is that of the cluster which had the name last.
	Forgotten(clusterID, uid string) bool
	// NamedUnsent counts the claims that a cluster named and was not sent.
	NamedUnsent(clusterID string, n int)
	// Reserve counts a claim in flight against a candidate of the view until a report covers it.
	Reserve(view *router.View, index int) fleet.Reservation
	// Explain judges every candidate of a view.
	Explain(req *router.Request, view *router.View) router.Explanation
}

// Options configure a Service. Zero values mean the defaults.
type Options struct {
	Fleet      Fleet
	Dispatcher calls.Dispatcher
	Store      store.Store
	Recovery   *recovery.State // nil: nothing was ever lost
	Clock      clock.WithTicker
	Log        logr.Logger
	Metrics    prometheus.Registerer
	Retention  time.Duration // how long a key is honoured after its sandbox ended; 24 h
	Rand       func() uint64 // breaks the router's near-ties
}

const (
	// DefaultRetention is how long a key answers its terminal record.
	DefaultRetention = 24 * time.Hour
	// grace is how much longer than the worker the hub waits, so that a refusal at the deadline still arrives.
	grace = 2 * time.Second
	// maxBackground bounds the writes and calls that go on behind an answer.
	maxBackground = 1024
)

// Service answers the calls about sandboxes and claims.
type Service struct {
	fleet     Fleet
	workers   calls.Workers
	ledger    *ledger.Ledger
	recovery  *recovery.State
	clock     clock.WithTicker
	log       logr.Logger
	retention time.Duration
	rand      func() uint64
	metrics   *metrics
	decisions *decisions
	endings   *endings
	indexes   latest // key indexes that are being taken into the ledger
	restored  latest // and what clusters lost whose etcd was set back

	base context.Context // of what outlives the call that began it
	stop context.CancelFunc
	jobs sync.WaitGroup
	slot chan struct{}

	mu        sync.Mutex
	closed    bool
	flights   map[string]*flight // by key hash
	answering map[string]*flight // by sandbox id: those whose outcome is being written down
}

// New answers a service. Close it after the last call.
func New(opts Options) *Service {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Retention <= 0 {
		opts.Retention = DefaultRetention
	}
	if opts.Rand == nil {
		opts.Rand = rand.Uint64
	}
	if opts.Recovery == nil {
		opts.Recovery = &recovery.State{}
	}
	unconfirmed := &endings{waiting: map[ending]bool{}}
	s := &Service{
		fleet: opts.Fleet, workers: calls.Workers{Dispatcher: opts.Dispatcher}, ledger: ledger.New(opts.Store), recovery: opts.Recovery, clock: opts.Clock, log: opts.Log,
		retention: opts.Retention, rand: opts.Rand, metrics: newMetrics(opts.Metrics, unconfirmed),
		decisions: newDecisions(), endings: unconfirmed,
		indexes: latest{running: map[string]*try{}}, restored: latest{running: map[string]*try{}},
		slot: make(chan struct{}, maxBackground), flights: map[string]*flight{}, answering: map[string]*flight{},
	}
	s.base, s.stop = context.WithCancel(logr.NewContext(context.Background(), opts.Log))
	return s
}

// Close ends everything that goes on behind answered calls, and waits for it.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.jobs.Wait()
}

// spawn starts a job that ends with the service. It reports false once the service is closed.
func (s *Service) spawn(job func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.jobs.Go(job)
	return true
}

// behind does something after the answer: at most maxBackground at a time, beyond that the caller does it.
func (s *Service) behind(what string, do func(ctx context.Context) error) {
	run := func() {
		ctx, cancel := context.WithTimeout(s.base, calls.Timeout)
		defer cancel()
		if err := do(ctx); err != nil && s.base.Err() == nil {
			s.log.Info("Could not finish what follows an answer", "what", what, "error", err.Error())
		}
	}
	select {
	case s.slot <- struct{}{}:
		if !s.spawn(func() { defer func() { <-s.slot }(); run() }) {
			<-s.slot
		}
	default:
		run()
	}
}

// InFlight counts the claims with a key that are under way, and what goes on behind answers (I10).
func (s *Service) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flights) + len(s.slot)
}
