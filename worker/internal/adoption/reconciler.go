// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxpools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Options are the reconciler's settings.
type Options struct {
	ClusterID string
	Mode      Mode
	// Paused reports pools that another controller manages; nil if there are none.
	Paused     func(*v1alpha1.SandboxPool) bool
	Registerer prometheus.Registerer
}

// Reconciler adopts pools.
type Reconciler struct {
	opts     Options
	client   client.Client
	live     client.Reader // bypasses the cache
	recorder events.EventRecorder
	actions  *prometheus.CounterVec
}

// Setup adds the reconciler to a manager, unless adoption is off.
func Setup(mgr ctrl.Manager, o Options) error {
	if o.Mode == Off || o.Mode == "" {
		return nil
	}
	r := &Reconciler{
		opts: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder(controllers.FieldManager),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_adoptions_total", Help: "Steps of the adoption of pools, by action and result: done, lost or failed.",
		}, []string{"action", "result"}),
	}
	if err := o.Registerer.Register(r.actions); err != nil {
		return fmt.Errorf("registering metrics of the adoption: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("adoption").
		For(&v1alpha1.SandboxPool{}, builder.WithPredicates(controllers.NotStatus())).
		Watches(&v1alpha1.SandboxEnv{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controllers.Options(1, 30*time.Second)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the adoption controller: %w", err)
	}
	return nil
}

// errStale means that an object has changed since it was read. The next reconcile sees the newer state.
var errStale = errors.New("pool or Env has changed since it was read")

// Reconcile handles the pool and the Env of one name.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.SandboxPool{}
	if err := r.client.Get(ctx, request.NamespacedName, pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	e := &v1alpha1.SandboxEnv{}
	switch err := r.client.Get(ctx, request.NamespacedName, e); {
	case apierrors.IsNotFound(err):
		e = nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the Env: %w", err)
	}
	d := decide(r.opts.Mode, pool, e)
	var err error
	switch d.verb {
	case verbNone, verbWait:
		return ctrl.Result{}, nil // an event ends the wait
	case verbRefuse:
		r.recorder.Eventf(pool, e, corev1.EventTypeWarning, d.reason, string(d.verb), "%s", d.message)
		return ctrl.Result{}, nil
	}
	if r.opts.Paused != nil && r.opts.Paused(pool) {
		return ctrl.Result{RequeueAfter: controllers.RetryPaused}, nil
	}
	if d.verb == verbCreate {
		err = r.makeEnv(ctx, pool)
	} else {
		err = r.own(ctx, pool, e)
	}
	switch {
	case errors.Is(err, errStale):
		r.actions.WithLabelValues(string(d.verb), "lost").Inc()
		return ctrl.Result{RequeueAfter: controllers.RetryStale}, nil
	case err != nil:
		r.actions.WithLabelValues(string(d.verb), "failed").Inc()
		return ctrl.Result{}, err
	}
	r.actions.WithLabelValues(string(d.verb), "done").Inc()
	return ctrl.Result{}, nil
}

// makeEnv creates the Env of a pool. The owner reference follows when the cache has the Env.
func (r *Reconciler) makeEnv(ctx context.Context, pool *v1alpha1.SandboxPool) error {
	doc, err := r.readLive(ctx, pool)
	if err != nil {
		return err
	}
	spec, _, err := unstructured.NestedMap(doc.Object, "spec")
	if err != nil {
		return fmt.Errorf("reading the spec of pool %s: %w", pool.Name, err)
	}
	body, err := envFor(r.opts.ClusterID, pool, spec)
	if err != nil {
		return fmt.Errorf("making an Env of pool %s: %w", pool.Name, err)
	}
	err = r.client.Create(ctx, &unstructured.Unstructured{Object: body}, client.FieldOwner(controllers.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		return errStale
	}
	if err != nil {
		return fmt.Errorf("creating the Env of pool %s: %w", pool.Name, err)
	}
	return nil
}

// own adds the owner reference to the pool.
func (r *Reconciler) own(ctx context.Context, pool *v1alpha1.SandboxPool, e *v1alpha1.SandboxEnv) error {
	doc, err := r.readLive(ctx, pool)
	if err != nil {
		return err
	}
	// blockOwnerDeletion is not set, because the pool's finalizer already blocks the deletion.
	owners := append(doc.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.SandboxEnvOwnerKind, Name: e.Name, UID: e.UID,
	})
	body, err := patch.JSON(append(patch.AsRead(doc), patch.Add("/metadata/ownerReferences", owners)))
	if err != nil {
		return err
	}
	err = r.client.Patch(ctx, doc, client.RawPatch(types.JSONPatchType, body), client.FieldOwner(controllers.FieldManager))
	if patch.LostRace(err) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return fmt.Errorf("putting the Env's reference on pool %s: %w", pool.Name, err)
	}
	r.recorder.Eventf(pool, e, corev1.EventTypeNormal, reasonPoolAdopted, string(verbOwn),
		"adopted by SandboxEnv %s; its Pods stay as they are", e.Name)
	return nil
}

// readLive reads the pool's document live, and returns errStale if it is not the observed pool, or if an Env owns it.
func (r *Reconciler) readLive(ctx context.Context, pool *v1alpha1.SandboxPool) (*unstructured.Unstructured, error) {
	doc, same, err := sandboxcache.LivePool(ctx, r.live, pool)
	if err != nil {
		return nil, err
	}
	if !same || v1alpha1.HasEnvOwner(doc) {
		return nil, errStale
	}
	return doc, nil
}
