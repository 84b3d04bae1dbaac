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
	// pendingInterval is the minimum time between two reads, and between two writes, of the length of a claim queue that is not empty.
	pendingInterval = 3 * time.Second

	retryMax = 30 * time.Second
)

// Recorder keeps the terminal records of sandboxes. Ended is called at least once for every sandbox, and must accept duplicates. It returns
// nil only if the record is stored.
type Recorder interface {
	// Released returns the termination of the sandbox for which this process deleted a Pod, or nil. The Pod does not show it.
	Released(pod types.UID) *sandbox.Termination
	Ended(ctx context.Context, record *sandboxv1.Sandbox, of sandbox.Claim) error
}

// Queues holds the waiting claims of each pool.
type Queues interface {
	// Waiting returns the current length of a pool's queue.
	Waiting(pool types.NamespacedName) int32
	// OnQueue registers f, which is called when a queue gets its first claim or loses its last, and must not block.
	OnQueue(f func(pool types.NamespacedName))
}

// noQueues is the Queues of a worker without claim queues.
type noQueues struct{}

func (noQueues) Waiting(types.NamespacedName) int32      { return 0 }
func (noQueues) OnQueue(func(pool types.NamespacedName)) {}

// Hooks runs the hooks and checks that precede a sandbox; see package hooks.
type Hooks interface {
	// Follow returns the states of the given jobs of a pool, and ends its other jobs.
	Follow(pool types.NamespacedName, jobs []hooks.Job) map[types.UID]hooks.State
	// Begin starts a job without blocking.
	Begin(job hooks.Job)
	// OnChange registers f, which is called when the state of a pool's job changes, and must not block.
	OnChange(f func(pool types.NamespacedName))
}

// noHooks is the Hooks of a worker that starts a sandbox as soon as its Pod is ready.
type noHooks struct{}

func (noHooks) Follow(types.NamespacedName, []hooks.Job) map[types.UID]hooks.State { return nil }
func (noHooks) Begin(hooks.Job)                                                    {}
func (noHooks) OnChange(func(pool types.NamespacedName))                           {}

// Options are the reconciler's settings.
type Options struct {
	// Client reads from a cache and writes to the API server.
	Client    client.Client
	Recorder  Recorder
	Events    events.EventRecorder
	ClusterID string
	// SandboxdImage contains atoll-sandboxd, for Pods with the runtime e2b. If it is empty, the images of Pods must contain it.
	SandboxdImage string
	// Queues are mirrored in status.pendingRequests; nil means none.
	Queues Queues
	// Hooks run before a sandbox does; nil means none.
	Hooks Hooks
	// Admission is asked before each Pod is created; nil admits all.
	Admission *admission.Chain
	// Refusals remembers which pools are refused Pods, for the autoscaler. If it is nil, New creates one.
	Refusals *admission.Refusals
	// Gaters can hold a pool back; nil means none.
	Gaters []Gater
	// Latency records the durations of starts; nil records nothing.
	Latency *latency.Recorder
	// Registry takes the metrics.
	Registry prometheus.Registerer
	// Clock measures windows and timeouts; nil is the real clock.
	Clock clock.PassiveClock
	// Times is the source of written times; nil is Clock.
	Times interface{ Now() time.Time }
	// Workers is how many pools are reconciled at once, 16 by default.
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

// watchQueues enqueues a pool when its queue gets its first claim or loses its last, with a delay: most queues are empty again before a
// write is worthwhile.
func (r *Reconciler) watchQueues(_ context.Context, q controllers.Queue) error {
	r.opts.Queues.OnQueue(func(pool types.NamespacedName) {
		q.AddAfter(reconcile.Request{NamespacedName: pool}, max(countDelay, r.pendings.wait(pool)))
	})
	return nil
}

// watchHooks enqueues a pool without delay, because a caller waits for the next step.
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
	// Report after a failure as well, because that is when users read the status.
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
