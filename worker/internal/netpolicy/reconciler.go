// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxpools;sandboxtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=list;watch;create;patch;delete

// Mode selects the kind of policies.
type Mode string

// Modes.
const (
	Off        Mode = "off"
	Kubernetes Mode = "kubernetes"
	Cilium     Mode = "cilium"
)

// ParseMode checks a flag's value.
func ParseMode(text string) (Mode, error) {
	switch m := Mode(text); m {
	case Off, Kubernetes, Cilium:
		return m, nil
	}
	return Off, fmt.Errorf("%q is not valid, want off, kubernetes or cilium", text)
}

// Options are the reconciler's settings.
type Options struct {
	Mode Mode
	// Egress is the default for pools without the annotation.
	Egress string
	// Worker may connect to Pods.
	Worker Worker
	// Paused reports pools that another controller manages; nil if there are none.
	Paused func(*v1alpha1.SandboxPool) bool
	// Clock is the process's own clock; nil is the system's.
	Clock clock.PassiveClock
	Log   logr.Logger
}

// Reconciler maintains the policies of pools.
type Reconciler struct {
	opts      Options
	standard  *Egress // of Options.Egress
	client    client.Client
	cache     client.Reader
	templates *podtemplate.Cache
	left      atomic.Pointer[leftover] // of the mode cilium; nil if the cleanup has not failed

	pool.Listeners // of the gate
}

// Setup adds the reconciler to a manager whose cache has the settings of package sandboxcache.
func Setup(mgr ctrl.Manager, o Options) (*Reconciler, error) {
	standard, err := ParseEgress(o.Egress)
	if err != nil {
		return nil, fmt.Errorf("reading the egress of pools without an annotation: %w", err)
	}
	r := &Reconciler{
		opts: o, standard: standard, client: mgr.GetClient(), cache: mgr.GetCache(),
		templates: podtemplate.NewCache(mgr.GetCache(), mgr.GetAPIReader(), o.Clock),
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("network-policy").
		For(&v1alpha1.SandboxPool{}, builder.WithPredicates(controllers.NotStatus())).
		Owns(&networkingv1.NetworkPolicy{}).
		Watches(podtemplate.Object(), handler.EnqueueRequestsFromMapFunc(r.poolsOf)).
		WithOptions(controllers.Options(1, 30*time.Second))
	if o.Mode == Cilium {
		names := &unstructured.Unstructured{}
		names.SetGroupVersionKind(ciliumKind)
		b = b.Owns(names)
	}
	if err := b.Complete(r); err != nil {
		return nil, fmt.Errorf("building the controller of network policies: %w", err)
	}
	if err := addCleanup(mgr, &cleanup{kinds: obsolete(o.Mode), left: r.leave, log: o.Log}); err != nil {
		return nil, err
	}
	return r, nil
}

// leave notes what is left of the mode cilium, for the conditions of all pools.
func (r *Reconciler) leave(ctx context.Context, left leftover) {
	r.left.Store(&left)
	pools := &v1alpha1.SandboxPoolList{}
	if err := r.client.List(ctx, pools); err != nil {
		return // the cache is closing
	}
	for i := range pools.Items {
		r.Announce(client.ObjectKeyFromObject(&pools.Items[i]))
	}
}

func (r *Reconciler) poolsOf(ctx context.Context, template client.Object) []reconcile.Request {
	pools, err := sandboxcache.PoolsOfTemplate(ctx, r.client, template.GetName())
	if err != nil {
		return nil // the cache is closing
	}
	var requests []reconcile.Request
	for i := range pools {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools[i])})
	}
	return requests
}

// Reconcile handles the policies of one pool. Those of a deleted pool are garbage-collected through their owner references.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.SandboxPool{}
	if err := r.client.Get(ctx, request.NamespacedName, pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	defer r.Announce(request.NamespacedName)
	if r.opts.Paused != nil && r.opts.Paused(pool) {
		return ctrl.Result{RequeueAfter: controllers.RetryPaused}, nil
	}
	w, err := r.gather(ctx, pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	// Apply the opening policy first. The network then stays open while the other policy, which opened it before, becomes the closing one.
	if err := r.applyOrRemove(ctx, w.opening, policyKind, pool, OpeningNameOf(pool.Name)); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.apply(ctx, w.policy); err != nil || r.opts.Mode != Cilium {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.applyOrRemove(ctx, w.names, ciliumKind, pool, NameOf(pool.Name))
}

// applyOrRemove applies a policy, or removes it if policy is nil because the pool needs none.
func (r *Reconciler) applyOrRemove(ctx context.Context, policy *unstructured.Unstructured, kind schema.GroupVersionKind,
	pool *v1alpha1.SandboxPool, name string) error {
	if policy != nil {
		return r.apply(ctx, policy)
	}
	return r.remove(ctx, kind, pool, name)
}

// want has the wanted policies of a pool.
type want struct {
	policy         *unstructured.Unstructured
	opening, names *unstructured.Unstructured // nil if not needed
	condition      patch.Condition
}

// gather reads the pool's template if it matters, and renders the policies.
func (r *Reconciler) gather(ctx context.Context, pool *v1alpha1.SandboxPool) (*want, error) {
	value, annotated := pool.Annotations[v1alpha1.EgressAnnotationKey]
	if !annotated {
		return r.render(pool, r.standard, r.opts.Egress, nil), nil
	}
	egress, fault := ParseEgress(value)
	if fault != nil {
		return r.render(pool, &Egress{}, "", fault), nil
	}
	var listed *Egress
	if name := pool.Spec.TemplateName; name != "" {
		template, err := r.templates.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		if template != nil {
			listed, _ = ParseEgress(template.Annotations[v1alpha1.EgressAnnotationKey]) // an invalid annotation lists nothing
		}
	}
	restricted, left := egress.Restrict(listed)
	if len(left) > 0 {
		fault = fmt.Errorf("annotation egress: %v: addresses of metadata services are opened only by the same annotation of SandboxTemplate %q",
			left, pool.Spec.TemplateName)
	}
	return r.render(pool, restricted, value, fault), nil
}

func (r *Reconciler) render(pool *v1alpha1.SandboxPool, e *Egress, value string, fault error) *want {
	const applied = v1alpha1.SandboxPoolConditionNetworkPolicyApplied
	w := &want{policy: Policy(pool, r.opts.Worker), opening: Opening(pool, e)}
	if r.opts.Mode == Cilium {
		w.names = Names(pool, e)
	} else if len(e.Names) > 0 {
		fault = errors.Join(fault, fmt.Errorf("annotation egress: %s: a name needs a CNI that knows names (sandboxNetwork.mode cilium of the "+
			"worker's chart); "+
			"valid here: dns, internet, addresses and CIDRs", e.Names[0].Name))
	}
	if fault != nil {
		w.condition = patch.False(applied, v1alpha1.ReasonEgressInvalid, fault.Error()+"; what is not opened stays closed"+r.exception(e))
		return w
	}
	open := strings.Join(strings.Fields(value), " ")
	if open == "" {
		open = "nothing"
	}
	w.condition = patch.True(applied, v1alpha1.ReasonNetworkPolicyApplied, "Pods may connect to: "+open+r.exception(e))
	return w
}

// exception says that policies of the mode cilium, which the worker cannot delete, open more. If it is not known whether there are any, it
// says so only of pools that list names.
func (r *Reconciler) exception(e *Egress) string {
	left := r.left.Load()
	if left == nil || !left.known && len(e.Names) == 0 {
		return ""
	}
	return "; but names that a CiliumNetworkPolicy of the mode cilium opens stay open, because the worker cannot delete it; delete it by: " +
		left.remedy
}

// apply writes a policy if it differs from the cached one.
func (r *Reconciler) apply(ctx context.Context, policy *unstructured.Unstructured) error {
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(policy.GroupVersionKind())
	err := r.cached(ctx, client.ObjectKeyFromObject(policy), have)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && same(have, policy) {
		return nil
	}
	err = r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(policy.DeepCopy()), client.FieldOwner(controllers.FieldManager),
		client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", policy.GetKind(), client.ObjectKeyFromObject(policy), err)
	}
	return nil
}

// cached reads a policy from the cache, as a document.
func (r *Reconciler) cached(ctx context.Context, key types.NamespacedName, into *unstructured.Unstructured) error {
	if into.GroupVersionKind() != policyKind {
		return r.cache.Get(ctx, key, into)
	}
	typed := &networkingv1.NetworkPolicy{}
	if err := r.client.Get(ctx, key, typed); err != nil {
		return err
	}
	return document(typed, into)
}

func same(have, policy *unstructured.Unstructured) bool {
	for key, value := range policy.GetLabels() {
		if have.GetLabels()[key] != value {
			return false
		}
	}
	return equality.Semantic.DeepEqual(have.Object["spec"], policy.Object["spec"]) &&
		equality.Semantic.DeepEqual(have.GetOwnerReferences(), policy.GetOwnerReferences())
}

func (r *Reconciler) remove(ctx context.Context, kind schema.GroupVersionKind, pool *v1alpha1.SandboxPool, name string) error {
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(kind)
	err := r.cached(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: name}, have)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = client.IgnoreNotFound(r.client.Delete(ctx, have))
	}
	if err != nil {
		return fmt.Errorf("deleting the %s of pool %s/%s: %w", kind.Kind, pool.Namespace, pool.Name, err)
	}
	return nil
}
