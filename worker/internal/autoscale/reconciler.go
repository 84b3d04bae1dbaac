// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/scalepolicy"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/replicas"
	"navix.sh/atoll/worker/internal/rooms"
)

const (
	// settle batches changes of queues and Pods, of which there are hundreds a second.
	settle = 250 * time.Millisecond
	// firstWaits is how long the first waiting claim is batched with others.
	firstWaits = 20 * time.Millisecond

	retryMax = 10 * time.Second
)

// Claims provides the live queues.
type Claims interface {
	Stats(pool types.NamespacedName) (claim.Stats, bool)
	// OnQueue registers f, which is called when a pool's queue gets its first claim or loses its last, and must not block.
	OnQueue(f func(pool types.NamespacedName))
}

// Inventory provides the cluster's Pods.
type Inventory interface {
	// Serving returns false before the queues are filled.
	Serving() bool
	// OnChange registers f, which is called when the Stats of a pool have changed, and must not block.
	OnChange(f func(pool types.NamespacedName))
}

// Options are the reconciler's settings.
type Options struct {
	// Client reads from a cache and writes to the API server.
	Client    client.Client
	ClusterID string
	Claims    Claims
	Inventory Inventory
	// Admission is asked before a group grows; nil admits all.
	Admission admission.PreUpdatePool
	// Refused returns the latest refusal of a pool's Pod and its age, if no Pod was admitted since. A nil function means that there are none.
	Refused func(pool types.NamespacedName) (message string, age time.Duration, ok bool)
	// Rooms limit growth if the hub divides maxReplicas over clusters; nil means no limits.
	Rooms *rooms.Rooms
	// Contests reports which members to leave alone.
	Contests *replicas.Contests
	// Paused reports Envs and pools that another controller manages, which are left alone; nil if there are none.
	Paused   func(client.Object) bool
	Events   events.EventRecorder
	Registry prometheus.Registerer
	// Clock measures durations, including those of queues; nil is the real clock.
	Clock clock.PassiveClock
	// Times is the API server's clock; nil: Clock.
	Times *apitime.Clock
}

// Reconciler scales the groups of Envs.
type Reconciler struct {
	client    client.Client
	clusterID string
	claims    Claims
	inventory Inventory
	admission admission.PreUpdatePool
	refused   func(pool types.NamespacedName) (string, time.Duration, bool)
	rooms     *rooms.Rooms
	contests  *replicas.Contests
	paused    func(client.Object) bool
	events    events.EventRecorder
	clock     clock.PassiveClock
	times     *apitime.Clock
	steady    *steady
	memory    *memory
	outlooks  *outlooks
	metrics   *metrics
	owners    sync.Map // from pools to their Envs, both types.NamespacedName
}

// New returns a Reconciler, to be set up with a manager.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.ClusterID == "" || o.Claims == nil || o.Inventory == nil || o.Events == nil {
		return nil, errors.New("the autoscaler needs a client, a cluster id, the claim service and a recorder of events")
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Times == nil {
		o.Times = apitime.New(o.Clock)
	}
	if o.Paused == nil {
		o.Paused = func(client.Object) bool { return false }
	}
	m, err := newMetrics(o.Registry)
	if err != nil {
		return nil, err
	}
	return &Reconciler{
		client: o.Client, clusterID: o.ClusterID, claims: o.Claims, inventory: o.Inventory, admission: o.Admission, refused: o.Refused,
		rooms: o.Rooms, contests: o.Contests, paused: o.Paused, events: o.Events, clock: o.Clock, times: o.Times,
		steady: &steady{local: o.Clock, times: o.Times}, memory: newMemory(), outlooks: newOutlooks(o.Clock), metrics: m,
	}, nil
}

// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxpools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxpools/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the watches and the controller. The manager's cache has the indexes of package sandboxcache.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr manager.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("autoscale").
		Watches(&v1alpha1.SandboxEnv{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.SandboxPool{}, r.poolHandler()).
		WatchesRawSource(source.Func(r.watchClaims)).
		WithOptions(controllers.Options(4, retryMax)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the autoscaler's controller: %w", err)
	}
	return nil
}

// poolHandler maintains the map from pools to Envs, and enqueues the Env of a changed pool.
func (r *Reconciler) poolHandler() handler.EventHandler {
	seen := func(q controllers.Queue, object client.Object) {
		key := client.ObjectKeyFromObject(object)
		if name := object.GetLabels()[v1alpha1.LabelEnv]; name != "" {
			r.owners.Store(key, types.NamespacedName{Namespace: key.Namespace, Name: name})
			r.wake(q, key, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controllers.Queue) { seen(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controllers.Queue) { seen(q, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controllers.Queue) {
			key := client.ObjectKeyFromObject(e.Object)
			r.wake(q, key, 0)
			r.owners.Delete(key)
		},
	}
}

func (r *Reconciler) watchClaims(_ context.Context, q controllers.Queue) error {
	r.claims.OnQueue(func(pool types.NamespacedName) { r.wake(q, pool, firstWaits) })
	r.inventory.OnChange(func(pool types.NamespacedName) { r.wake(q, pool, settle) })
	if r.rooms != nil {
		r.rooms.OnChange(func(env types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: env}) })
	}
	return nil
}

func (r *Reconciler) wake(q controllers.Queue, pool types.NamespacedName, in time.Duration) {
	if name, ok := r.owners.Load(pool); ok {
		q.AddAfter(reconcile.Request{NamespacedName: name.(types.NamespacedName)}, in)
	}
}

// Reconcile handles one Env: gather, decide, act, report.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("env", req.NamespacedName))
	e := &v1alpha1.SandboxEnv{}
	err := r.client.Get(ctx, req.NamespacedName, e, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err) || err == nil && e.DeletionTimestamp != nil:
		r.forget(req.NamespacedName, nil)
		if err != nil && r.rooms != nil { // an Env that is being deleted still has its Pods
			r.rooms.Forget(req.NamespacedName)
		}
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading the Env: %w", err)
	case e.Spec.Mode == v1alpha1.SandboxEnvModeOnDemandJob:
		// Package env reports the mode in a condition. Nothing is written to the Env, not even to clean up after another mode.
		r.forget(req.NamespacedName, nil)
		r.observeRooms(req.NamespacedName, nil)
		return reconcile.Result{}, nil
	case r.paused(e):
		r.forget(req.NamespacedName, nil)
		r.observeRooms(req.NamespacedName, nil)
		return reconcile.Result{RequeueAfter: controllers.RetryPaused}, nil
	case !r.inventory.Serving():
		// Queues are empty before claims are served. This is no reason to shrink.
		return reconcile.Result{RequeueAfter: time.Second}, nil
	case r.memory.behind(req.NamespacedName, versionOf(e)):
		return reconcile.Result{RequeueAfter: settle}, nil
	}
	groups, others, err := r.gather(ctx, e)
	if errors.Is(err, errNotReady) {
		return reconcile.Result{RequeueAfter: settle}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	var failures []error
	named := map[types.NamespacedName]bool{}
	next := controllers.Resync()
	for _, g := range groups {
		again, err := r.scale(ctx, e, g)
		failures = append(failures, err)
		if again > 0 {
			next = min(next, again)
		}
		for _, t := range g.members {
			named[t.key] = true
		}
	}
	for _, pool := range others {
		failures = append(failures, r.clear(ctx, pool))
	}
	r.forget(req.NamespacedName, named)
	if err := errors.Join(failures...); err != nil || len(groups) == 0 {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// scale decides about one group and carries out the decision. It returns when to reconcile again.
func (r *Reconciler) scale(ctx context.Context, e *v1alpha1.SandboxEnv, g *group) (again time.Duration, err error) {
	decided := scalepolicy.Decide(g.Group)
	again = decided.Again
	if !r.promise(g, &decided) {
		return settle, nil // the room has shrunk meanwhile
	}
	var failures []error
	for i, t := range g.members {
		d := &decided.Members[i]
		t.memo.status = d.Status
		err := r.act(ctx, e, g, t, d)
		if err != nil && r.rooms != nil {
			r.rooms.Doubt(g.room)
		}
		failures = append(failures, err)
		wait, err := r.report(ctx, e, g, t, d)
		failures = append(failures, err)
		for _, in := range []time.Duration{wait, untilAttempt(r, t, d)} {
			if in > 0 && (again == 0 || in < again) {
				again = in
			}
		}
	}
	return again, errors.Join(failures...)
}

// promise reports whether the decision fits into the group's room. If so, the room counts it as held from then on.
func (r *Reconciler) promise(g *group, d *scalepolicy.Decision) bool {
	if r.rooms == nil || g.Policy.MaxReplicas == nil {
		return true
	}
	r.rooms.Need(g.room, g.Demand(d))
	for i := range d.Members {
		if d.Members[i].Direction == scalepolicy.Up {
			return r.rooms.Promise(g.room, g.HeldAfter(d))
		}
	}
	return true
}

// untilAttempt returns when a member that wants to grow may ask admission again.
func untilAttempt(r *Reconciler, t *target, d *scalepolicy.MemberDecision) time.Duration {
	if d.Direction != scalepolicy.Up {
		return 0
	}
	return max(r.untilAsked(t), settle)
}

func (r *Reconciler) forget(name types.NamespacedName, keep map[types.NamespacedName]bool) {
	for _, pool := range r.memory.keep(name, keep) {
		r.outlooks.forget(pool)
		r.metrics.forget(pool)
	}
}

// Outlook returns whether a pool can grow, and how long it is saturated. It returns false and 0 for a pool that is not autoscaled.
func (r *Reconciler) Outlook(pool types.NamespacedName) (canGrow bool, saturated time.Duration) {
	return r.outlooks.get(pool)
}

// OnOutlook registers f, which is called when the Outlook of a pool has changed, and must not block. Call OnOutlook before the manager
// starts.
func (r *Reconciler) OnOutlook(f func(pool types.NamespacedName)) { r.outlooks.onChange(f) }
