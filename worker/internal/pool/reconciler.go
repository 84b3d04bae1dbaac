// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/latency"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// pendingInterval is the shortest time between two reads, and two writes, of the length of a claim queue that is not empty.
	pendingInterval = 3 * time.Second

	retryMax = 30 * time.Second
)

// Recorder keeps the terminal records of sandboxes. Ended is called at least once for every sandbox, and must accept the same
// sandbox more than once. It returns nil only when the record is kept.
type Recorder interface {
	// Released returns the end that this process has deleted a Pod for, which the Pod does not show; nil for none.
	Released(pod types.UID) *sandbox.Termination
	Ended(ctx context.Context, record *sandboxv1.Sandbox, of sandbox.Claim) error
}

// Queues are the waiting claims, by pool.
type Queues interface {
	// Waiting returns the current length of a pool's queue.
	Waiting(pool types.NamespacedName) int32
	// OnQueue calls f whenever a queue gets its first claim or loses its last. f does not block.
	OnQueue(f func(pool types.NamespacedName))
}

// noQueues is for a worker without claim queues.
type noQueues struct{}

func (noQueues) Waiting(types.NamespacedName) int32      { return 0 }
func (noQueues) OnQueue(func(pool types.NamespacedName)) {}

// Hooks does what must happen in a Pod before its sandbox runs; see package hooks.
type Hooks interface {
	// Follow returns the states of a pool's jobs, and ends the pool's jobs that are not named.
	Follow(pool types.NamespacedName, jobs []hooks.Job) map[types.UID]hooks.State
	// Begin begins a job; it does not block.
	Begin(job hooks.Job)
	// OnChange calls f when the state of one of a pool's jobs changes. f does not block.
	OnChange(f func(pool types.NamespacedName))
}

// noHooks is for a worker that starts a sandbox as soon as its Pod is ready.
type noHooks struct{}

func (noHooks) Follow(types.NamespacedName, []hooks.Job) map[types.UID]hooks.State { return nil }
func (noHooks) Begin(hooks.Job)                                                    {}
func (noHooks) OnChange(func(pool types.NamespacedName))                           {}

// Options are what a Reconciler needs.
type Options struct {
	// Client reads from a cache and writes to the API server.
	Client    client.Client
	Recorder  Recorder
	Events    events.EventRecorder
	ClusterID string
	// SandboxdImage has atoll-sandboxd, for Pods with the runtime e2b; empty: their images bring it.
	SandboxdImage string
	// Queues are written into status.pendingRequests; nil: there are none.
	Queues Queues
	// Hooks run before a sandbox does; nil: there are none.
	Hooks Hooks
	// Admission is asked before each Pod is created; nil admits all.
	Admission *admission.Chain
	// Refusals remembers which pools are refused Pods, for the autoscaler; nil: New creates one.
	Refusals *admission.Refusals
	// Gaters can hold a pool back; nil: none is held back.
	Gaters []Gater
	// Latency takes the times of starts; nil: they are not recorded.
	Latency *latency.Recorder
	// Registry takes the metrics.
	Registry prometheus.Registerer
	// Clock measures windows and timeouts; nil: the real one.
	Clock clock.PassiveClock
	// Times are the times that are written; nil: the Clock's.
	Times interface{ Now() time.Time }
	// Workers is how many pools are reconciled at once. Default 16.
	Workers int
}

// Reconciler reconciles pools.
type Reconciler struct {
	opts    Options
	notices *notices
	metrics *metrics
	memory
}

// New returns a Reconciler, to be set up with a manager.
func New(o Options) (*Reconciler, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Times == nil {
		o.Times = o.Clock
	}
	if o.Queues == nil {
		o.Queues = noQueues{}
	}
	if o.Hooks == nil {
		o.Hooks = noHooks{}
	}
	if o.Refusals == nil {
		o.Refusals = admission.NewRefusals(o.Clock)
	}
	m, err := newMetrics(o.Registry)
	if err != nil {
		return nil, err
	}
	return &Reconciler{opts: o, notices: newNotices(o.Events, o.Clock), metrics: m, memory: newMemory(o.Clock)}, nil
}

// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxpools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxpools/status,verbs=patch
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxpools/finalizers,verbs=update
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the watches and the controller. The manager's cache has the indexes of package sandboxcache.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr manager.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("pool").
		For(&v1alpha1.SandboxPool{}, builder.WithPredicates(controllers.NotStatus())).
		Watches(&corev1.Pod{}, podHandler{r.expectations}).
		WatchesRawSource(source.Func(r.watchQueues)).
		WatchesRawSource(source.Func(r.watchHooks)).
		WatchesRawSource(source.Func(r.watchGates)).
		WithOptions(controllers.Options(cmp.Or(r.opts.Workers, 16), retryMax)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the pool controller: %w", err)
	}
	return nil
}

// watchQueues enqueues a pool whose queue has got its first claim or lost its last. Most queues are empty again before a write
// would be worth it.
func (r *Reconciler) watchQueues(_ context.Context, q controllers.Queue) error {
	r.opts.Queues.OnQueue(func(pool types.NamespacedName) {
		q.AddAfter(reconcile.Request{NamespacedName: pool}, max(countDelay, r.pendings.wait(pool)))
	})
	return nil
}

// watchHooks enqueues a pool at once; because a caller waits for the next step.
func (r *Reconciler) watchHooks(_ context.Context, q controllers.Queue) error {
	r.opts.Hooks.OnChange(func(pool types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: pool}) })
	return nil
}

// Reconcile gathers, decides, acts and reports.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	s, err := r.gather(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.Pool == nil && len(s.Pods) == 0 {
		r.forget(key)
		return reconcile.Result{}, nil
	}
	if s.Paused {
		return reconcile.Result{RequeueAfter: r.next(key, &s)}, nil
	}
	d := decide(s)
	switch {
	case d.ProtectPool:
		err = r.setFinalizers(ctx, &s, append(slices.Clone(s.Pool.Finalizers), v1alpha1.SandboxPoolFinalizer))
	case d.ReleasePool:
		err = r.setFinalizers(ctx, &s, slices.DeleteFunc(slices.Clone(s.Pool.Finalizers),
			func(f string) bool { return f == v1alpha1.SandboxPoolFinalizer }))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	actErr := r.act(ctx, key, &s, d)
	counts, wait := r.measure(key, &s), time.Duration(0)
	// A report is due after a failure, too; because that is when users read it.
	if s.Pool != nil && !d.ReleasePool {
		wait, err = r.report(ctx, key, &s, counts)
	}
	if actErr != nil {
		return reconcile.Result{}, actErr
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: r.next(key, &s, d.Wake, wait, r.opts.Refusals.Hold(key, s.Revision))}, nil
}

// next returns when to reconcile again without an event.
func (r *Reconciler) next(key types.NamespacedName, s *snapshot, waits ...time.Duration) time.Duration {
	next := controllers.Resync()
	if r.opts.Queues.Waiting(key) > 0 || s.Pool != nil && s.Pool.Status.PendingRequests > 0 {
		waits = append(waits, pendingInterval)
	}
	for _, wait := range waits {
		if wait > 0 {
			next = min(next, wait)
		}
	}
	return next
}

// setFinalizers adds the pool's finalizer before its first Pod, or removes it after its last.
func (r *Reconciler) setFinalizers(ctx context.Context, s *snapshot, finalizers []string) error {
	pool := s.Pool.DeepCopy()
	helper := patch.NewPatchHelper(r.opts.Client, pool)
	pool.Finalizers = finalizers
	err := helper.Patch(ctx, pool)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("setting the pool's finalizer: %w", err)
	}
	s.Pool = pool
	return nil
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.opts.Hooks.Follow(key, nil)
	r.opts.Refusals.Forget(key)
	r.notices.forget(key)
	r.metrics.forget(key)
	r.memory.forget(key)
}
