// SPDX-License-Identifier: Apache-2.0

package env

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/instances"
	"navix.sh/atoll/worker/internal/podtemplate"
	"navix.sh/atoll/worker/internal/replicas"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const (
	// settleDelay batches new pools and changes of pools' counts, which come in bursts and only need to be mirrored.
	settleDelay = 500 * time.Millisecond
	// longestBackoff is the maximum time between two reconciles of an Env that fails.
	longestBackoff = 10 * time.Second
)

// Options are the reconciler's settings.
type Options struct {
	// ClusterID names the worker's own segment.
	ClusterID string
	// Clock is the source of times in status.
	Clock clock.PassiveClock
	// Local is the clock of this process, for waits.
	Local clock.Clock
	// Admission is asked before a pool is created, and before an orphan is deleted; nil admits everything.
	Admission *admission.Chain
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	// Contests has the members that the autoscaler leaves alone, and is shared with it. It is nil without an autoscaler.
	Contests *replicas.Contests
	// Allotted reports whether the hub divides maxReplicas over clusters; nil: it does not.
	Allotted func() bool
	// Paused reports Envs and pools that another controller manages; nil if there are none.
	Paused func(client.Object) bool
	// Namespace is the worker's own namespace, which has the instance types.
	Namespace string
	// NoPullSecrets stops the reconciler from reading Secrets, which needs a permission of its own. No pool gets a pull secret then, and one
	// that has it keeps it until it is refreshed.
	NoPullSecrets bool
	// Leads reports whether this worker leads; nil means always. A follower refreshes nothing, because its cache may be old.
	Leads func() bool
	// MaxConcurrentReconciles is how many Envs are reconciled at once. It is 2 by default, because the writes of large Envs compete with
	// claims for the API server.
	MaxConcurrentReconciles int
}

// New creates the reconciler. Package sandboxcache configures the manager's cache to keep the managed fields of Envs and pools, which show
// the last writer of a member's replicas.
func New(mgr ctrl.Manager, opts Options) (*Reconciler, error) {
	if opts.ClusterID == "" || opts.Namespace == "" {
		return nil, errors.New("the Env reconciler needs a cluster id and the worker's namespace")
	}
	metrics, err := newMetrics(opts.Registerer)
	if err != nil {
		return nil, fmt.Errorf("registering metrics of the Env reconciler: %w", err)
	}
	types, err := instances.Watch(mgr, opts.Namespace)
	if err != nil {
		return nil, err
	}
	return &Reconciler{
		types:       types,
		parallel:    cmp.Or(opts.MaxConcurrentReconciles, 2),
		clusterID:   opts.ClusterID,
		client:      mgr.GetClient(),
		live:        mgr.GetAPIReader(),
		templates:   podtemplate.NewCache(mgr.GetCache(), mgr.GetAPIReader(), opts.Local),
		recorder:    mgr.GetEventRecorder(controllers.FieldManager),
		clock:       opts.Clock,
		local:       opts.Local,
		metrics:     metrics,
		admission:   opts.Admission,
		refusals:    newRefusals(opts.Local),
		contests:    opts.Contests,
		allotted:    opts.Allotted,
		matches:     newMatches(),
		creations:   newCreations(opts.Local),
		pullSecrets: !opts.NoPullSecrets,
		paused:      opts.Paused,
		leads:       opts.Leads,
	}, nil
}

// SetupWithManager registers the watches and the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager) error {
	// Envs have no predicate. After our own status write the next reconcile writes nothing, and any other change of status, such as a lost or
	// a foreign segment, matters.
	builder := ctrl.NewControllerManagedBy(mgr).
		Named("env").
		For(&v1alpha1.SandboxEnv{}).
		Watches(&v1alpha1.SandboxPool{}, poolHandler()).
		Watches(podtemplate.Object(), handler.EnqueueRequestsFromMapFunc(r.envsOfTemplate)).
		WatchesRawSource(r.types.Source(handler.TypedEnqueueRequestsFromMapFunc(r.envsOfTypes))).
		WithOptions(controllers.Options(r.parallel, longestBackoff))
	if r.pullSecrets {
		builder.Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(envOfPullSecret))
	}
	return builder.Complete(r)
}

func (r *Reconciler) envsOfTemplate(ctx context.Context, obj client.Object) []reconcile.Request {
	envs, err := sandboxcache.EnvsOf(ctx, r.client, obj.GetName())
	if err != nil {
		// The cache has no such index, or is closing. The resync finds the Envs.
		return nil
	}
	requests := make([]reconcile.Request, 0, len(envs))
	for i := range envs {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&envs[i])})
	}
	return requests
}

// envsOfTypes returns all Envs that name an instance type.
func (r *Reconciler) envsOfTypes(ctx context.Context, _ *corev1.ConfigMap) []reconcile.Request {
	envs := &v1alpha1.SandboxEnvList{}
	if err := r.client.List(ctx, envs, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is closing
	}
	var requests []reconcile.Request
	for i := range envs.Items {
		if env := &envs.Items[i]; namesType(env, r.clusterID) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(env)})
		}
	}
	return requests
}

// poolHandler maps a pool to its Envs. It enqueues them immediately if the pool was deleted or changed. It delays them if only its counts
// changed, or if the pool was created, most often by its Env.
func poolHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controllers.Queue) { enqueue(q, settleDelay, e.Object) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controllers.Queue) { enqueue(q, 0, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controllers.Queue) {
			if onlyStatusChanged(e.ObjectOld, e.ObjectNew) {
				enqueue(q, settleDelay, e.ObjectNew)
				return
			}
			enqueue(q, 0, e.ObjectOld, e.ObjectNew)
		},
	}
}

func onlyStatusChanged(before, after client.Object) bool {
	return before.GetGeneration() == after.GetGeneration() &&
		before.GetDeletionTimestamp().Equal(after.GetDeletionTimestamp()) &&
		maps.Equal(before.GetLabels(), after.GetLabels()) &&
		maps.Equal(before.GetAnnotations(), after.GetAnnotations()) &&
		slices.EqualFunc(before.GetOwnerReferences(), after.GetOwnerReferences(), func(a, b metav1.OwnerReference) bool {
			return a.UID == b.UID
		})
}

// enqueue adds the Envs of the pools' labels and owner references. Callers also pass a pool's former state, because a label may have been
// changed by hand.
func enqueue(q controllers.Queue, delay time.Duration, pools ...client.Object) {
	for _, pool := range pools {
		for _, name := range envNames(pool) {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pool.GetNamespace(), Name: name}}, delay)
		}
	}
}

func envNames(pool client.Object) []string {
	var names []string
	if name := pool.GetLabels()[v1alpha1.LabelEnv]; name != "" {
		names = append(names, name)
	}
	for _, ref := range pool.GetOwnerReferences() {
		if ref.Kind == v1alpha1.SandboxEnvOwnerKind && !slices.Contains(names, ref.Name) {
			names = append(names, ref.Name)
		}
	}
	return names
}

// namesType reports whether the Env's defaults or local members name an instance type.
func namesType(env *v1alpha1.SandboxEnv, clusterID string) bool {
	return env.Spec.Defaults != nil && env.Spec.Defaults.InstanceType != "" ||
		slices.ContainsFunc(env.MembersOf(clusterID), func(m *v1alpha1.EnvClusterMember) bool { return m.Config.InstanceType != "" })
}
