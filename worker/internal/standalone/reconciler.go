// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/podtemplate"
	"navix.sh/atoll/worker/internal/pool"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxpools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Options are the reconciler's settings.
type Options struct {
	// Paused reports pools that another controller manages; nil if there are none.
	Paused     func(*v1alpha1.SandboxPool) bool
	Registerer prometheus.Registerer
	// Clock is the process's own clock; nil is the system's.
	Clock clock.PassiveClock
}

// Reconciler copies a template's fields into pools without an Env.
type Reconciler struct {
	client client.Client
	// live reads from the API server, bypassing the cache.
	live      client.Reader
	paused    func(*v1alpha1.SandboxPool) bool
	templates *podtemplate.Cache
	recorder  events.EventRecorder
	copies    *prometheus.CounterVec

	pool.Listeners // of the gate
}

// Setup adds the reconciler to a manager whose cache has the indexes of package sandboxcache.
func Setup(mgr ctrl.Manager, o Options) (*Reconciler, error) {
	r := &Reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), paused: o.Paused, recorder: mgr.GetEventRecorder(controllers.FieldManager),
		templates: podtemplate.NewCache(mgr.GetCache(), mgr.GetAPIReader(), o.Clock),
		copies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_pool_template_copies_total",
			Help: "Pools without an Env that were given their template's fields, by result: copied, lost (the pool had changed) or failed.",
		}, []string{"result"}),
	}
	if err := o.Registerer.Register(r.copies); err != nil {
		return nil, fmt.Errorf("registering metrics of pools without an Env: %w", err)
	}
	// The pool reconciler writes the status.
	err := ctrl.NewControllerManagedBy(mgr).
		Named("standalone-pool").
		For(&v1alpha1.SandboxPool{}, builder.WithPredicates(controllers.NotStatus())).
		Watches(podtemplate.Object(), handler.EnqueueRequestsFromMapFunc(r.poolsOf)).
		WithOptions(controllers.Options(1, 30*time.Second)).
		Complete(r)
	if err != nil {
		return nil, fmt.Errorf("building the controller of pools without an Env: %w", err)
	}
	return r, nil
}

func (r *Reconciler) poolsOf(ctx context.Context, obj client.Object) []reconcile.Request {
	pools, err := sandboxcache.PoolsOfTemplate(ctx, r.client, obj.GetName())
	if err != nil {
		return nil // the cache is closing
	}
	var requests []reconcile.Request
	for i := range pools {
		if !v1alpha1.HasEnvOwner(&pools[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools[i])})
		}
	}
	return requests
}

// Reconcile handles one pool.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.SandboxPool{}
	if err := r.client.Get(ctx, request.NamespacedName, pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if v1alpha1.HasEnvOwner(pool) {
		return ctrl.Result{}, nil
	}
	// The event may have changed the pool's gate.
	defer r.Announce(request.NamespacedName)
	if frozen(pool) || pool.Spec.TemplateName == "" || pool.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	if r.paused != nil && r.paused(pool) {
		return ctrl.Result{RequeueAfter: controllers.RetryPaused}, nil
	}
	tmpl, err := r.templates.Seen(ctx, pool.Namespace, pool.Spec.TemplateName)
	if err != nil || tmpl == nil {
		return ctrl.Result{}, err
	}
	if tmpl.Hidden { // a change of the Namespace causes no event
		return ctrl.Result{RequeueAfter: controllers.Resync()}, nil
	}
	switch err := r.give(ctx, pool, tmpl); {
	case errors.Is(err, errStale):
		r.copies.WithLabelValues("lost").Inc()
		return ctrl.Result{RequeueAfter: controllers.RetryStale}, nil
	case err != nil:
		r.copies.WithLabelValues("failed").Inc()
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, nil
}

// errStale means that the pool has changed since it was read. The next reconcile sees the newer state.
var errStale = errors.New("the pool has changed since it was read")

// give writes the fields into the live pool if it is still the observed one.
func (r *Reconciler) give(ctx context.Context, pool *v1alpha1.SandboxPool, tmpl *podtemplate.Template) error {
	doc, same, err := sandboxcache.LivePool(ctx, r.live, pool)
	if err != nil {
		return err
	}
	if !same {
		return errStale
	}
	spec, _, err := unstructured.NestedMap(doc.Object, "spec")
	if err != nil {
		return fmt.Errorf("reading the spec of pool %s: %w", pool.Name, err)
	}
	d := decide(pool, spec, tmpl)
	if d.verb != verbCopy {
		return nil // its condition says why
	}
	body, err := patch.JSON(operations(doc, d.add, tmpl))
	if err != nil {
		return err
	}
	err = r.client.Patch(ctx, doc, client.RawPatch(types.JSONPatchType, body), client.FieldOwner(controllers.FieldManager))
	if patch.LostRace(err) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return fmt.Errorf("giving pool %s its template's fields: %w", pool.Name, err)
	}
	r.copies.WithLabelValues("copied").Inc()
	r.recorder.Eventf(pool, nil, corev1.EventTypeNormal, string(v1alpha1.ReasonTemplateCopied), string(verbCopy),
		"given what it leaves out from template %s (version %q, revision %s)", tmpl.Name, tmpl.Version, tmpl.Revision)
	return nil
}

// operations returns the patch that adds a pool's fields and records their origin. The pool's own labels and annotations stay.
func operations(doc *unstructured.Unstructured, add map[string]any, tmpl *podtemplate.Template) []patch.Operation {
	ops := patch.AsRead(doc)
	for field, value := range add {
		ops = append(ops, patch.Add("/spec/"+field, value))
	}
	labels := under(doc.GetLabels(), podtemplate.Inheritable(tmpl.Labels))
	annotations := under(doc.GetAnnotations(), podtemplate.Inheritable(tmpl.Annotations))
	annotations[v1alpha1.SandboxPoolTemplateNameAnnotationKey] = tmpl.Name
	annotations[v1alpha1.SandboxPoolTemplateVersionAnnotationKey] = tmpl.Version
	annotations[v1alpha1.TemplateRevisionAnnotationKey] = tmpl.Revision
	return append(ops, patch.Add("/metadata/labels", labels), patch.Add("/metadata/annotations", annotations))
}

// under returns the entries of have, and those of more that have lacks.
func under(have, more map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, more)
	maps.Copy(out, have)
	return out
}
