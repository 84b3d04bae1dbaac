// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/allowed"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

// settle batches the events that follow one change of a template, because all of its pools may change at once.
const settle = 500 * time.Millisecond

// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxtemplates/status,verbs=patch
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs;sandboxpools,verbs=list;watch

// Reconciler maintains the conditions of templates.
type Reconciler struct {
	client client.Client
	cache  client.Reader // reads documents from the cache; the client would read them live
	clock  clock.PassiveClock
}

// Setup adds the reconciler to a manager whose cache has the indexes of package sandboxcache. The clock is the source of
// conditions' times.
func Setup(mgr ctrl.Manager, clk clock.PassiveClock) error {
	r := &Reconciler{client: mgr.GetClient(), cache: mgr.GetCache(), clock: clk}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("template").
		For(Object()).
		Watches(&v1alpha1.SandboxPool{}, users(func(o client.Object) string { return o.(*v1alpha1.SandboxPool).Spec.TemplateName })).
		Watches(&v1alpha1.SandboxEnv{}, users(func(o client.Object) string { return o.(*v1alpha1.SandboxEnv).Spec.TemplateRef.Name })).
		WithOptions(controllers.Options(1, 30*time.Second)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the template controller: %w", err)
	}
	return nil
}

// users maps pools and Envs to the templates that they name or did name. It ignores changes of their counts and snapshots.
func users(template func(client.Object) string) handler.EventHandler {
	wake := func(q controllers.Queue, objects ...client.Object) {
		for _, o := range objects {
			if name := template(o); name != "" {
				q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}, settle)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controllers.Queue) { wake(q, e.Object) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controllers.Queue) { wake(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controllers.Queue) {
			if template(e.ObjectOld) != template(e.ObjectNew) || revisionOf(e.ObjectOld) != revisionOf(e.ObjectNew) ||
				envOf(e.ObjectOld) != envOf(e.ObjectNew) {
				wake(q, e.ObjectOld, e.ObjectNew)
			}
		},
	}
}

func revisionOf(o client.Object) string {
	return o.GetAnnotations()[v1alpha1.TemplateRevisionAnnotationKey]
}

// envOf returns the Env that owns a pool, as namespace/name.
func envOf(o client.Object) string {
	for _, ref := range o.GetOwnerReferences() {
		if ref.Kind == v1alpha1.SandboxEnvOwnerKind {
			return o.GetNamespace() + "/" + ref.Name
		}
	}
	return ""
}

// Reconcile handles one template.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	obj := Object()
	if err := r.cache.Get(ctx, request.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s, err := r.gather(ctx, obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, obj, s)
}

func (r *Reconciler) gather(ctx context.Context, obj *unstructured.Unstructured) (*snapshot, error) {
	t, err := Read(obj)
	if err != nil {
		return nil, err
	}
	s := &snapshot{Version: t.Version, Revision: t.Revision, Faults: append(Faults(t.Spec), allowed.Faults(t.Annotations)...),
		Deleting: obj.GetDeletionTimestamp() != nil}
	pools, err := sandboxcache.PoolsOfTemplate(ctx, r.client, obj.GetName())
	if err != nil {
		return nil, err
	}
	for i := range pools {
		p := &pools[i]
		s.Pools = append(s.Pools, user{Pool: p.Namespace + "/" + p.Name, Env: envOf(p), Revision: revisionOf(p)})
	}
	envs, err := sandboxcache.EnvsOf(ctx, r.client, obj.GetName())
	if err != nil {
		return nil, err
	}
	for i := range envs {
		s.Envs = append(s.Envs, envs[i].Namespace+"/"+envs[i].Name)
	}
	return s, nil
}

// report applies the conditions if they changed.
func (r *Reconciler) report(ctx context.Context, obj *unstructured.Unstructured, s *snapshot) error {
	// Leave conditions of other writers out of our document.
	after := slices.DeleteFunc(conditionsIn(obj), func(c metav1.Condition) bool {
		return c.Type != v1alpha1.SandboxTemplateConditionAvailable && c.Type != v1alpha1.SandboxTemplateConditionDegraded
	})
	changed := false
	for _, c := range decide(s) {
		changed = meta.SetStatusCondition(&after, metav1.Condition{
			Type: c.Type, Status: c.Status, Reason: string(c.Reason), Message: c.Message,
			ObservedGeneration: obj.GetGeneration(), LastTransitionTime: metav1.NewTime(r.clock.Now()),
		}) || changed
	}
	if !changed {
		return nil
	}
	list := make([]any, 0, len(after))
	for i := range after {
		doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&after[i])
		if err != nil {
			return fmt.Errorf("encoding conditions: %w", err)
		}
		list = append(list, doc)
	}
	body := Object()
	body.SetName(obj.GetName())
	body.SetUID(obj.GetUID())
	body.Object["status"] = map[string]any{"conditions": list}
	err := r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(body),
		client.FieldOwner(controllers.FieldManager), client.ForceOwnership)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, or created again: its event will come
	}
	if err != nil {
		return fmt.Errorf("applying the template's status: %w", err)
	}
	return nil
}

// conditionsIn reads the conditions of a document. Unreadable ones count as missing and are written again.
func conditionsIn(obj *unstructured.Unstructured) []metav1.Condition {
	list, _, err := unstructured.NestedSlice(obj.Object, "status", "conditions")
	if err != nil {
		return nil
	}
	content, err := json.Marshal(list)
	if err != nil {
		return nil
	}
	var out []metav1.Condition
	if json.Unmarshal(content, &out) != nil {
		return nil
	}
	return out
}
