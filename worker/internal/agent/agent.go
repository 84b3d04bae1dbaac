// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/kubeproxy"
	"navix.sh/atoll/worker/internal/segments"
)

// Claims serves claims.
type Claims interface {
	Create(ctx context.Context, c claim.Claim) (*sandboxv1.Sandbox, error)
	// Decline refuses a claim with a key because there is no room for it.
	Decline(c claim.Claim, why *problem.Error) error
	Lookup(ctx context.Context, keyHash string, attempt int32) (*sandboxv1.Sandbox, error)
	Cancel(ctx context.Context, keyHash string, attempt int32) (*sandboxv1.Sandbox, error)
	Withdraw(keyHash string, attempt int32) error
	segments.Claims
	// Keys lists the holders of the hub's keys. AllKeys includes those whose sandbox has ended.
	Keys() []*federationv1.KeyHolder
	AllKeys() []*federationv1.KeyHolder
	// LateWrites counts holders that appeared without a write of this leader. When it grows, Keys must be sent again.
	LateWrites() uint64
}

// Sandboxes manages sandboxes.
type Sandboxes interface {
	Get(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	List(ctx context.Context, request *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error)
	Release(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	Update(ctx context.Context, request *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error)
	Touch(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	Pause(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	Resume(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	// Feed sends the sandboxes of a namespace and a team, and then their changes, until ctx or the term ends.
	Feed(ctx context.Context, namespace, team string, send func(*federationv1.SandboxChanges) error) error
	// Abandon ends a sandbox that no caller has received, and retries for as long as that takes.
	Abandon(id string)
	// DistrustActivity keeps alive sandboxes whose activity was lost when etcd was restored from a backup.
	DistrustActivity()
	// TakeEnded returns the oldest unacknowledged records, and the batch number that acknowledges them.
	TakeEnded(most int) (batch uint64, records []*federationv1.EndedSandbox)
	AckEnded(batch uint64)
	// StopRecording leaves the recording of sandboxes that end from now on to the next leader.
	StopRecording()
	// OnEnded registers a callback for each new record. The callback must not block.
	OnEnded(more func())
}

// Inventory is the index over the cluster's Pods.
type Inventory interface {
	// SetIncarnation starts to serve claims.
	SetIncarnation(n uint64)
	// Suspend stops serving claims for the rest of this term.
	Suspend()
	// Serving reports whether claims are served. Keys is complete only then.
	Serving() bool
	// SetBack is closed once it is known that etcd was restored from a backup.
	SetBack() <-chan struct{}
	// NewestSeen returns the highest resourceVersion that was seen.
	NewestSeen() uint64
	segments.Inventory
}

// Envs refreshes members of Envs.
type Envs interface {
	Refresh(ctx context.Context, request *sandboxv1.RefreshEnvRequest) (*sandboxv1.RefreshEnvResponse, error)
}

// Catalog writes this cluster's part of the hub's catalogue.
type Catalog interface {
	Catalog(ctx context.Context, call *federationv1.CatalogCall) (*federationv1.CatalogResult, error)
}

// Rooms limit the growth of scaling groups to the cluster's share that the hub allots.
type Rooms interface {
	// Switch turns the limits on or off. Begin starts an incarnation, which has no rooms yet.
	Switch(on bool)
	Begin(incarnation uint64)
	Allot(ctx context.Context, call *federationv1.AllotCall) (*federationv1.AllotResult, error)
}

// noRooms is the Rooms of a worker that scales no groups.
type noRooms struct{}

func (noRooms) Switch(bool)  {}
func (noRooms) Begin(uint64) {}
func (noRooms) Allot(context.Context, *federationv1.AllotCall) (*federationv1.AllotResult, error) {
	return nil, problem.New(problem.Unimplemented, "this worker scales no groups")
}

// Foreign takes the hub's messages about other clusters. Its methods do not block.
type Foreign interface {
	Connected(connected bool)
	Receive(f *federationv1.Foreign)
}

// Options configure an Agent.
type Options struct {
	ClusterID string
	Version   string
	Host      string // of a worker that runs outside of its cluster, else empty
	// Namespace of the ConfigMap atoll-worker-state.
	Namespace string
	// Hub is the address to dial. Without a target, the agent only maintains the incarnation.
	Hub link.Dial
	// Identity is the identity that the hub issues to this cluster. If it is nil, the certificate comes from files.
	Identity Identity
	Services
	Inventory Inventory
	// Outlooks are those of pools; nil if no autoscaler runs.
	Outlooks segments.Outlooks
	Foreign  Foreign
	// Paused reports whether another controller manages a pool, which then gets no claims; nil if there is none.
	Paused func(*v1alpha1.SandboxPool) bool
	// OnPausedChange registers a callback for possible changes of the result of Paused; nil if it never changes.
	OnPausedChange func(f func())
	// ReportSize is the maximum size of a chunk of a report in bytes. 0 stands for the size that fits into a frame.
	ReportSize int
	Clock      clock.WithTicker
	Traces     trace.TracerProvider  // nil: no spans
	Metrics    prometheus.Registerer // nil: none
	Log        logr.Logger
}

// Services carry out the hub's calls.
type Services struct {
	Claims    Claims
	Sandboxes Sandboxes
	Reach     reach.Opener // nil if the hub cannot reach sandboxes here
	// Kubernetes forwards requests to the API server; nil if the hub's callers may send none.
	Kubernetes *kubeproxy.Proxy
	// Envs refreshes members; nil if the hub cannot request that here.
	Envs    Envs
	Catalog Catalog // nil if this cluster takes no part of the hub's catalogue
	Rooms   Rooms   // nil if no groups are scaled
}

// Agent is the worker's end of the link.
type Agent struct {
	opts     Options
	client   client.Client
	reader   client.Reader // not cached
	informer cache.Cache
	source   *segments.Source
	metrics  metrics

	leadership
	clusterUID string
	store      incarnations
	revision   revision
	connected  atomic.Bool
	ended      chan struct{} // has a token while there are new terminal records

	acrossStreams
	tunnels   atomic.Pointer[tunnels] // of the current stream
	executing sync.WaitGroup
	slots     slots
	ending    ending
}

// leadership is one term of the worker as its cluster's leader.
type leadership struct {
	term        string
	running     context.Context // of Start; bounds work that outlives a stream
	incarnation atomic.Uint64
	// ready is closed when claims may be served: the incarnation is stored, and the hub has said whether etcd was restored from a backup, or
	// the wait for it is over.
	ready  chan struct{}
	arming sync.Mutex // held while the incarnation of claims changes
	// suspects is true from the hub's word that etcd was restored until idle Pods are replaced. Until then claims do not begin to be served;
	// a term that serves already goes on. arming guards it.
	suspects bool
}

// acrossStreams is the state that one stream passes on to the next.
type acrossStreams struct {
	sequence       uint64            // of the last report of this incarnation
	reported       *segment.Snapshot // as of that report, if the hub acknowledged exactly that, else nil
	streams        uint64            // of this term
	recovers       bool              // the hub has lost claim keys
	unacknowledged []*federationv1.Unacknowledged
	ledger         atomic.Pointer[federationv1.LedgerMark] // the latest mark that the hub sent; nil without one
	allotted       bool                                    // the hub divides maxReplicas, as stored
	retired        []*tunnels                              // of streams that ended for a new certificate
	lockedOut      string                                  // hash of the CAs that a hub sent and that do not accept that hub's certificate
}

// New returns an Agent. cached reads from informers, live does not.
func New(cached client.Client, live client.Reader, informers cache.Cache, opts Options) *Agent {
	if opts.Rooms == nil {
		opts.Rooms = noRooms{}
	}
	if opts.Identity == nil {
		opts.Identity = files{}
	}
	a := &Agent{
		opts:     opts,
		client:   cached,
		reader:   live,
		informer: informers,
		source: segments.New(segments.Options{
			Cache: cached, ClusterID: opts.ClusterID, Claims: opts.Claims, Inventory: opts.Inventory, Outlooks: opts.Outlooks, Paused: opts.Paused,
		}),
		store: incarnations{client: cached, reader: live,
			name: types.NamespacedName{Namespace: opts.Namespace, Name: stateConfigMap}},
		metrics:    newMetrics(),
		revision:   newRevision(),
		leadership: leadership{ready: make(chan struct{})},
		ended:      make(chan struct{}, 1),
		slots:      newSlots(),
		ending:     newEnding(),
	}
	opts.Sandboxes.OnEnded(func() {
		select {
		case a.ended <- struct{}{}:
		default:
		}
	})
	return a
}

// Connected reports whether a hub accepts this cluster's reports.
func (a *Agent) Connected() bool { return a.connected.Load() }

// Incarnation returns the incarnation of this leadership, or 0 before it is stored.
func (a *Agent) Incarnation() uint64 { return a.incarnation.Load() }

// arm starts to serve claims, unless idle Pods must be replaced first. Only the first such call has an effect.
func (a *Agent) arm() {
	a.arming.Lock()
	defer a.arming.Unlock()
	if !a.armed() && !a.suspects {
		a.opts.Inventory.SetIncarnation(a.Incarnation())
		close(a.ready)
	}
}

func (a *Agent) armed() bool {
	select {
	case <-a.ready:
		return true
	default:
		return false
	}
}

// setIncarnation gives this term a higher incarnation. Until claims are served, no other process has seen the old one.
func (a *Agent) setIncarnation(n uint64) {
	a.arming.Lock()
	defer a.arming.Unlock()
	a.incarnation.Store(n)
	a.opts.Rooms.Begin(n)
	a.sequence = 0
	if a.armed() {
		a.opts.Inventory.SetIncarnation(n)
	}
}

// awaitServing waits until reports can be complete: caches synced, Pods listed, lease held.
func (a *Agent) awaitServing(ctx context.Context) bool {
	if !a.informer.WaitForCacheSync(ctx) {
		return false
	}
	for !a.opts.Inventory.Serving() {
		if wallclock.Sleep(ctx, a.opts.Clock, servingPoll) != nil {
			return false
		}
	}
	return true
}

const (
	servingPoll = 50 * time.Millisecond
	// hubPatience is how long claims wait for the hub's report on etcd. A running hub sends it within milliseconds.
	hubPatience = 2 * time.Second
)

// setConnected notifies package sync if the value changes.
func (a *Agent) setConnected(connected bool) {
	if a.connected.Swap(connected) != connected {
		a.opts.Foreign.Connected(connected)
	}
}

var errUnknownIdentity = errors.New("this worker's certificate names another cluster")

// identityError explains a certificate that does not match --cluster-id. Retries do not help.
func (a *Agent) identityError(says string) error {
	return &link.RetryAfterError{
		Err:   fmt.Errorf("%w: the certificate is for %q, this is %q", errUnknownIdentity, says, a.opts.ClusterID),
		After: link.MaxBackoff,
	}
}
