// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/await"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/latency"
)

// Bounds of what is remembered.
const (
	keyMemory   = 10 * time.Minute
	maxKeys     = 100_000
	endedMemory = 7 * 24 * time.Hour
	maxEnded    = 100_000
)

// keepAgain is between two attempts to make durable what no Pod shows any more, maxKeepAgain when they keep failing.
const (
	keepAgain    = 200 * time.Millisecond
	maxKeepAgain = 10 * time.Second
)

// lastPatience is how long what was begun may go on once serving has ended.
const lastPatience = 5 * time.Second

// DefaultQueueCapacity is how many claims may wait for one pool.
const DefaultQueueCapacity = 8192

// Lease tells whether no other process can lead yet.
type Lease interface{ Held() bool }

// Options configure a Service. ClusterID, Pods, Lease, Time and History are required.
type Options struct {
	ClusterID     string
	Pods          *Pods
	Lease         Lease
	Time          *apitime.Clock
	Clock         clock.Clock // for deadlines
	History       *history.History
	QueueCapacity int32             // claims waiting for one pool; DefaultQueueCapacity if 0
	Latency       *latency.Recorder // nil when nobody wants them
	Activity      []idle.LastActiveSource
	Metrics       prometheus.Registerer
	Log           logr.Logger
}

// Service hands out Pods. Its methods are safe for concurrent use.
type Service struct {
	opts     Options
	metrics  *metrics
	timeouts *idle.Keeper // does not call back with its lock held; may be called with this one's

	eventReads chan struct{} // a token for each read of events under way

	mu          sync.Mutex
	leading     context.Context // set while serving
	lasting     context.Context // set while serving, and a while longer
	running     int             // pieces of work under way
	drained     chan struct{}   // closed when there are none any more; nil: nobody waits
	incarnation uint64
	armed       chan struct{} // closed once an incarnation is set
	loaded      bool          // the index has been complete once
	synced      []func() bool

	pools map[types.NamespacedName]*pool
	pods  map[types.UID]*entry
	nodes map[string]*node
	byID  map[string]*entry
	byKey map[string][]*entry
	ops   map[string]*op   // by key hash
	waits *await.Tasks     // for what becomes of sandboxes; may be called with the lock held
	turns map[string]*turn // pauses and resumes under way, by sandbox id
	// nudged are the sandboxes of which a write has failed, and is tried again after a while.
	nudged map[string]bool
	// disposing are the sandboxes that nobody was told of and that are being ended; true: something asked for it again.
	disposing map[string]bool

	refused *memory[refusal]  // by key hash
	unclear *memory[string]   // sandbox id of the last unclear write, by key hash
	strays  *memory[struct{}] // sandbox ids that nobody was told of, nor will be
	ended   *endedStore
	closed  bool // takes no more records
	keeping bool // what is in ended is being made durable

	newest   uint64                  // the highest resourceVersion seen
	setBack  chan struct{}           // closed when etcd is older than what was seen
	distrust bool                    // etcd was set back before this process led
	latest   *entry                  // the Pod that has changed last, unless it is gone
	lagging  map[types.UID]time.Time // since when a view of these Pods is older than another; each is in pods

	outlook  func(types.NamespacedName) (canGrow bool, saturated time.Duration) // nil: nothing grows
	onChange []func(types.NamespacedName, bool)
	onQueue  []func(types.NamespacedName)
	onEnded  []func()
	onShut   []func(id string)
	shutNow  []string           // to be told at unlock
	touched  map[*pool]struct{} // to be announced at unlock
	news     bool               // a record for the hub is to be announced
}

// refusal is the answer that (key, attempt) and all earlier attempts got.
type refusal struct {
	attempt int32
	err     error
}

// New returns a Service that knows of no Pods yet; see Watch and Start.
func New(opts Options) (*Service, error) {
	if opts.ClusterID == "" || opts.Pods == nil || opts.Lease == nil || opts.Time == nil || opts.History == nil {
		return nil, errors.New("claim service needs a cluster id, a pod client, a lease, the server's time and a history")
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.QueueCapacity <= 0 {
		opts.QueueCapacity = DefaultQueueCapacity
	}
	m, err := newMetrics(opts.Metrics)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	s := &Service{
		opts: opts, metrics: m, eventReads: make(chan struct{}, maxEventReads), armed: make(chan struct{}), setBack: make(chan struct{}), lagging: map[types.UID]time.Time{},
		pools: map[types.NamespacedName]*pool{}, pods: map[types.UID]*entry{}, nodes: map[string]*node{},
		byID: map[string]*entry{}, byKey: map[string][]*entry{}, ops: map[string]*op{},
		waits: await.New(opts.Clock), turns: map[string]*turn{}, nudged: map[string]bool{}, disposing: map[string]bool{},
		refused: newMemory[refusal](keyMemory, maxKeys),
		unclear: newMemory[string](keyMemory, maxKeys),
		strays:  newMemory[struct{}](keyMemory, maxKeys),
		ended:   newEndedStore(),
		touched: map[*pool]struct{}{},
	}
	if err := s.registerGauges(opts.Metrics); err != nil {
		return nil, err
	}
	s.timeouts, err = idle.New(idle.Options{
		Clock: opts.Clock, Sources: opts.Activity, End: s.expire, Write: s.writeActive, Metrics: opts.Metrics, Log: opts.Log,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// NeedLeaderElection makes the manager call Start on the leader only.
func (s *Service) NeedLeaderElection() bool { return true }

// SetIncarnation sets the number that claims are written with. The first call lets the service serve.
func (s *Service) SetIncarnation(n uint64) {
	s.mu.Lock()
	defer s.unlock()
	s.incarnation = n
	select {
	case <-s.armed:
	default:
		close(s.armed)
	}
}

// Start serves until ctx ends. First it waits for an incarnation and for the informers, then it lists live what an earlier
// leader may have written: the informers can lag behind that. When etcd is found set back it serves nothing any more, and
// answers ErrSetBack in the end.
func (s *Service) Start(ctx context.Context) error {
	if err := s.ready(ctx); err != nil {
		return nil //nolint:nilerr // ctx ended: not being leader any more is no failure
	}
	pods, err := s.listClaimed(ctx)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s.serve(ctx, lasting, pods)
	s.opts.Log.Info("Serving claims", "cluster", s.opts.ClusterID, "claimed", len(pods))
	var watching sync.WaitGroup
	watching.Go(func() { s.timeouts.Run(ctx) })
	s.watchPods(ctx)
	<-ctx.Done()
	s.retire()
	patience := time.AfterFunc(lastPatience, stop)
	defer patience.Stop()
	watching.Wait()
	s.drain()
	if s.wasSetBack() {
		return ErrSetBack
	}
	return nil
}

// ready waits for what serving needs.
func (s *Service) ready(ctx context.Context) error {
	select {
	case <-s.armed:
	case <-ctx.Done():
		return ctx.Err()
	}
	for !s.informed() {
		if err := wallclock.Sleep(ctx, s.opts.Clock, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) informed() bool {
	s.mu.Lock()
	defer s.unlock()
	for _, synced := range s.synced {
		if !synced() {
			return false
		}
	}
	return true
}

func (s *Service) listClaimed(ctx context.Context) ([]corev1.Pod, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		pods, err := s.opts.Pods.claimed(ctx)
		if err == nil {
			return pods, nil
		}
		s.opts.Log.Error(err, "Cannot serve claims yet", "cluster", s.opts.ClusterID)
		if err := wallclock.Sleep(ctx, s.opts.Clock, wait); err != nil {
			return nil, err
		}
	}
}

func (s *Service) serve(ctx, lasting context.Context, claimed []corev1.Pod) {
	s.mu.Lock()
	defer s.unlock()
	for i := range claimed {
		s.see(&claimed[i], true)
	}
	s.leading, s.lasting, s.loaded = ctx, lasting, true
	for _, e := range s.byID {
		s.takeOver(e)
		s.enforce(e)
		s.followTurn(e.id, 0)
	}
	s.keepVanished()
	if s.distrust {
		s.timeouts.Renew()
	}
}

// retire refuses everything to come. Claims that wait end by their context; what is being written is written, and what
// nobody will be told of is still ended, for the lease is given up only after that.
func (s *Service) retire() {
	s.mu.Lock()
	defer s.unlock()
	s.leading = nil
	s.shutAll()
}

// Suspend refuses everything to come, for as long as this leadership lasts.
func (s *Service) Suspend() { s.retire() }

// Serving reports whether claims are served here and now.
func (s *Service) Serving() bool {
	s.mu.Lock()
	defer s.unlock()
	return s.servingLocked()
}

func (s *Service) servingLocked() bool { return s.leading != nil && s.opts.Lease.Held() }

// servesLocked reports whether a claim is for the incarnation that serves now. One of a local caller names none.
func (s *Service) servesLocked(c *Claim) bool {
	return s.servingLocked() && (c.Incarnation == 0 || c.Incarnation == s.incarnation)
}

// InFlight counts the claims that are carried out, and the sandboxes that somebody waits for or that are to end unanswered (I10).
func (s *Service) InFlight() int {
	s.mu.Lock()
	defer s.unlock()
	return len(s.ops) + s.waits.Len() + len(s.nudged) + len(s.disposing)
}

// Stats are the live numbers of a pool.
type Stats struct {
	ReadyIdle    int32 // Pods that can be handed out now
	Waiting      int32 // claims in the queue
	WaitCapacity int32 // claims that may be in the queue
	// LastCreate is when a sandbox was last asked for, on the service's Clock; zero if this process has not been asked.
	LastCreate time.Time
}

// Stats answers the numbers of a pool; false for a pool that is not known.
func (s *Service) Stats(key types.NamespacedName) (Stats, bool) {
	s.mu.Lock()
	defer s.unlock()
	p, ok := s.pools[key]
	if !ok || p.spec == nil {
		return Stats{}, false
	}
	return Stats{
		ReadyIdle: int32(p.idle.len()), Waiting: int32(p.waiting.len()), WaitCapacity: s.opts.QueueCapacity, LastCreate: p.asked,
	}, true
}

// OnChange calls f whenever the numbers of a pool have changed; urgent when it went from none idle to some or back. f
// must not block. Call OnChange before Watch.
func (s *Service) OnChange(f func(pool types.NamespacedName, urgent bool)) {
	s.mu.Lock()
	defer s.unlock()
	s.onChange = append(s.onChange, f)
}

// SetOutlook gives the service what the autoscaler expects of pools. f does not block and takes none of its locks.
func (s *Service) SetOutlook(f func(pool types.NamespacedName) (canGrow bool, saturated time.Duration)) {
	s.mu.Lock()
	defer s.unlock()
	s.outlook = f
}

// saturatedFor is for how long a pool will not grow. The lock is held.
func (s *Service) saturatedFor(p *pool) time.Duration {
	if s.outlook == nil {
		return 0
	}
	_, saturated := s.outlook(p.key)
	return saturated
}

// Waiting is the length of a pool's queue.
func (s *Service) Waiting(pool types.NamespacedName) int32 {
	stats, _ := s.Stats(pool)
	return stats.Waiting
}

// OnQueue calls f whenever a pool's queue has got its first claim or lost its last one. f must not block.
func (s *Service) OnQueue(f func(pool types.NamespacedName)) {
	s.mu.Lock()
	defer s.unlock()
	s.onQueue = append(s.onQueue, f)
}

// unlock announces what changed under the lock, after it.
func (s *Service) unlock() {
	type change struct {
		pool          types.NamespacedName
		urgent, queue bool
	}
	var changes []change
	for p := range s.touched {
		stocked, queued := p.idle.len() > 0, p.waiting.len() > 0
		changes = append(changes, change{p.key, stocked != p.stocked, queued != p.queued})
		p.stocked, p.queued = stocked, queued
	}
	clear(s.touched)
	listeners, queues := s.onChange, s.onQueue
	var ended []func()
	if s.news {
		ended, s.news = s.onEnded, false
	}
	shut, shutters := s.shutNow, s.onShut
	s.shutNow = nil
	s.mu.Unlock()
	for _, id := range shut {
		for _, f := range shutters {
			f(id)
		}
	}
	for _, f := range ended {
		f()
	}
	for _, c := range changes {
		for _, f := range listeners {
			f(c.pool, c.urgent)
		}
		if c.queue {
			for _, f := range queues {
				f(c.pool)
			}
		}
	}
}
