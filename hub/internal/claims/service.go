// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/background"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/pkg/environment"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

// Fleet is the hub's view of its clusters.
type Fleet interface {
	// View returns the router's view of an Env, nil for an unknown one.
	View(key segment.Key) *router.View
	// UnknownEnv returns the error about an Env that no cluster has.
	UnknownEnv(namespace, name string) error
	// Faults returns what clusters tell that a person must cure before an Env's members there can serve, by cluster.
	Faults(key segment.Key) map[string]string
	// Unserved lists the clusters that an Env has members of: those that are not registered, and those without such an Env.
	Unserved(key segment.Key) (missing, without []string)
	// ClusterIDs lists every registered cluster, connected or not.
	ClusterIDs() []string
	// Awaited lists the registered clusters from which a hub that has just started still awaits a report.
	Awaited() []string
	// Unmet lists the registered clusters that have not said Hello to this hub process, and whose report no other replica has relayed.
	Unmet() []string
	// Unreported lists the registered clusters that have not reported to this hub process yet.
	Unreported() []string
	// Registration returns the uid of the cluster that has a name now; empty: none.
	Registration(clusterID string) string
	// Forgotten reports whether an operator has forgotten the cluster with a name and uid. An unknown uid means the cluster that
	// had the name last.
	Forgotten(clusterID, uid string) bool
	// ServesTeam reports whether a cluster was given an Env for claims of a team.
	ServesTeam(clusterID, team string, env segment.Key) bool
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
	// Shared is the same store where several replicas of the hub write it; nil: there is one.
	Shared store.Shared
	// Replica names this replica among them; by default a random name.
	Replica string
	// Live is a hint whether a replica is there; nil: none. A wrong one only delays claims without a waiting caller.
	Live      func(replica string) bool
	Recovery  *recovery.State // nil: nothing was ever lost
	Clock     clock.WithTicker
	Log       logr.Logger
	Metrics   prometheus.Registerer
	Retention time.Duration // how long a key is kept after its sandbox ended; 24 h
	Quota     Quota         // of each team; DefaultQuota
	Rand      func() uint64 // breaks the router's near-ties
	// RefuseCredentials refuses hooks that hold a credential as text.
	RefuseCredentials bool
}

const (
	// DefaultRetention is how long a key returns its terminal record.
	DefaultRetention = 24 * time.Hour
	// grace is how much longer than the worker the hub waits, so that a refusal at the deadline still arrives.
	grace = 2 * time.Second
	// mostIndexPause bounds the delay of a recovery after the store has room again.
	mostIndexPause = 30 * time.Second
	// mostLostPause is longer; because each try reads the whole ledger, and the cluster may be away.
	mostLostPause = 5 * time.Minute
)

// Service implements the calls about claims.
type Service struct {
	fleet      Fleet
	workers    calls.Workers
	ledger     *ledger.Ledger
	shared     store.Shared // nil: one replica
	replica    string       // empty with one
	live       func(replica string) bool
	recovery   *recovery.State
	clock      clock.WithTicker
	started    time.Time
	log        logr.Logger
	retention  time.Duration
	quota      Quota
	strict     bool // RefuseCredentials
	rand       func() uint64
	metrics    *metrics
	decisions  *decisions
	endings    *endings
	background *background.Group
	indexes    background.Latest // key indexes that are being added to the ledger
	restored   background.Latest // what clusters lost whose etcd was restored
	flights    *flights

	environment environment.Environment                        // nil: none is set
	sent        func(env segment.Key, cluster string, ok bool) // nil: none is told
}

// New returns a service. Close it after the last call.
func New(opts Options) *Service {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Retention <= 0 {
		opts.Retention = DefaultRetention
	}
	if opts.Quota == (Quota{}) {
		opts.Quota = DefaultQuota
	}
	if opts.Rand == nil {
		opts.Rand = mathrand.Uint64
	}
	if opts.Recovery == nil {
		opts.Recovery = &recovery.State{}
	}
	records, replica := opts.Store, ""
	if opts.Shared != nil {
		records, replica = &patient{Store: opts.Shared}, cmp.Or(opts.Replica, rand.Text())
	}
	unconfirmed := newEndings()
	return &Service{
		fleet: opts.Fleet, workers: calls.Workers{Dispatcher: opts.Dispatcher}, ledger: ledger.New(records),
		shared: opts.Shared, replica: replica, live: opts.Live,
		recovery: opts.Recovery, clock: opts.Clock, started: opts.Clock.Now(), log: opts.Log, retention: opts.Retention, quota: opts.Quota,
		rand: opts.Rand, strict: opts.RefuseCredentials,
		metrics: newMetrics(opts.Metrics, unconfirmed), decisions: newDecisions(), endings: unconfirmed,
		background: background.New(opts.Clock, opts.Log), flights: newFlights(),
	}
}

// Close ends the background work of returned calls, and waits for it.
func (s *Service) Close() { s.background.Close() }

// InFlight counts the running claims with a key, and the background work of returned calls, also what waits for its turn (I10).
func (s *Service) InFlight() int {
	_, unsent := s.endings.count()
	return s.flights.len() + s.background.Following() + unsent
}
