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
	// View returns the router's view of an Env, or nil for an unknown Env.
	View(key segment.Key) *router.View
	// UnknownEnv returns the error for an Env that no cluster has, as the caller may see it.
	UnknownEnv(namespace, name string, caller fleet.Sight) error
	// Faults returns, by cluster, the faults of an Env that a person must fix before the Env's members in that cluster can serve.
	Faults(key segment.Key) map[string]string
	// Unserved lists the clusters that an Env names: those that are not registered, and those without such an Env.
	Unserved(key segment.Key) (missing, without []string)
	// ClusterIDs lists every registered cluster, connected or not.
	ClusterIDs() []string
	// Awaited lists the registered clusters from which a hub that has just started still awaits a report.
	Awaited() []string
	// Unmet lists the registered clusters that have sent no Hello to this hub process and whose report no other replica has relayed.
	Unmet() []string
	// Unreported lists the registered clusters that have not reported to this hub process yet.
	Unreported() []string
	// Registration returns the uid of the cluster that now has a name, or "" if none has it.
	Registration(clusterID string) string
	// Forgotten reports whether an operator has forgotten the cluster with a name and uid. An unknown uid means the cluster that
	// had the name last.
	Forgotten(clusterID, uid string) bool
	// ServesTeam reports whether a cluster's scope includes an Env for claims of a team.
	ServesTeam(clusterID, team string, env segment.Key) bool
	// NamedUnsent adds n claims that a cluster named but that this hub did not send to it.
	NamedUnsent(clusterID string, n int)
	// Reserve counts a claim in flight against a candidate of the view until a report covers it.
	Reserve(view *router.View, index int) fleet.Reservation
	// Explain evaluates every candidate of a view.
	Explain(req *router.Request, view *router.View) router.Explanation
}

// Options configure a Service. Zero values mean the defaults.
type Options struct {
	Fleet      Fleet
	Dispatcher calls.Dispatcher
	Store      store.Store // a store.Shared if several replicas of the hub write it
	// Replica is this replica's name; by default a random one.
	Replica string
	// Live is a hint whether a replica is alive; nil: there is no hint. A wrong hint only delays claims without a waiting caller.
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
	// grace is how much longer the hub waits than the worker, so that a refusal at the deadline still arrives.
	grace = 2 * time.Second
	// mostIndexPause bounds the pause between two attempts to add a key index, and so the delay of a recovery after the store has room again.
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
	restored   background.Latest // searches for the sandboxes that restored clusters lost
	flights    *flights

	environment environment.Environment                        // nil: claims with an environment are refused
	sent        func(env segment.Key, cluster string, ok bool) // OnSent's function; nil: none
}

// New returns a Service. Callers close it after the last call.
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
	shared, several := opts.Store.(store.Shared)
	if several {
		records, replica = &boundedStore{Store: shared}, cmp.Or(opts.Replica, rand.Text())
	}
	unconfirmed := newEndings()
	return &Service{
		fleet: opts.Fleet, workers: calls.Workers{Dispatcher: opts.Dispatcher}, ledger: ledger.New(records),
		shared: shared, replica: replica, live: opts.Live,
		recovery: opts.Recovery, clock: opts.Clock, started: opts.Clock.Now(), log: opts.Log, retention: opts.Retention, quota: opts.Quota,
		rand: opts.Rand, strict: opts.RefuseCredentials,
		metrics: newMetrics(opts.Metrics, unconfirmed), decisions: newDecisions(), endings: unconfirmed,
		background: background.New(opts.Clock, opts.Log), flights: newFlights(),
	}
}

// Close stops the background work that outlives calls, and waits for it.
func (s *Service) Close() { s.background.Close() }

// InFlight counts the running claims with a key and the background work that outlives calls, including waiting ends (I10).
func (s *Service) InFlight() int {
	_, unsent := s.endings.count()
	return s.flights.len() + s.background.Following() + unsent
}
