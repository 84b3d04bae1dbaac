// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/instances"
	"navix.sh/atoll/worker/internal/podtemplate"
	"navix.sh/atoll/worker/internal/replicas"
)

// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs/status,verbs=patch
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs/finalizers,verbs=update
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxpools,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles the local segment of every SandboxEnv.
type Reconciler struct {
	clusterID string
	client    client.Client
	// live reads from the API server, bypassing the cache.
	live      client.Reader
	templates *podtemplate.Cache
	types     *instances.Watcher
	recorder  events.EventRecorder
	clock     clock.PassiveClock // for times in status
	local     clock.Clock        // for waits
	metrics   *metrics
	admission *admission.Chain
	refusals  *refusals
	contests  *replicas.Contests // nil without an autoscaler
	allotted  func() bool        // nil: never
	matches   *matches
	creations *creations
	// pullSecrets is set if Secrets are watched.
	pullSecrets bool
	// paused reports objects that another controller manages; nil if there are none.
	paused   func(client.Object) bool
	leads    func() bool // nil: always
	parallel int
}

// Reconcile handles one Env: gather, decide, act, report.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	logger := log.FromContext(ctx).WithValues("env", request.NamespacedName, "cluster", r.clusterID)
	ctx = log.IntoContext(ctx, logger)

	o, err := r.gather(ctx, request.NamespacedName)
	switch {
	case errors.Is(err, errStale):
		return ctrl.Result{RequeueAfter: controllers.RetryStale}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("gathering: %w", err)
	case o == nil:
		r.metrics.setMembers(request.NamespacedName, nil)
		r.refusals.prune(request.NamespacedName, nil)
		r.contests.Forget(request.NamespacedName)
		r.matches.update(request.NamespacedName, nil, nil)
		return ctrl.Result{}, nil
	case r.managedByOther(o):
		return ctrl.Result{RequeueAfter: controllers.Resync()}, nil
	}
	p := decide(o)
	stale, later, err := r.act(ctx, o, &p)
	r.matches.update(request.NamespacedName, o, &p)
	r.refusals.prune(request.NamespacedName, &p)
	reported := r.report(ctx, o, &p)
	if errors.Is(reported, errStale) {
		stale, reported = true, nil
	}
	switch err = errors.Join(err, reported); {
	case err != nil:
		return ctrl.Result{}, err
	case stale:
		return ctrl.Result{RequeueAfter: controllers.RetryStale}, nil
	}
	next := untilNews(o, controllers.Resync())
	if later > 0 {
		next = min(next, later)
	}
	for _, h := range r.refusals.waiting(request.NamespacedName) {
		next = min(next, h.wait)
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// untilNews returns when to reconcile again: at the end of a saturation, which causes no event, or after longest, whichever is sooner.
func untilNews(o *observation, longest time.Duration) time.Duration {
	for _, member := range o.members() {
		if pool := o.ownedPool(member.Name); pool != nil {
			if until := saturatedUntil(o, member, pool); until != nil {
				longest = min(longest, until.Sub(o.now))
			}
		}
	}
	return longest
}
