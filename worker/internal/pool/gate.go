// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/sandbox"
)

// Gate is another package's report on a pool that affects its reconciliation.
type Gate struct {
	// Paused means that another controller manages the pool. Neither the pool nor its Pods are written, deleted or created.
	Paused bool
	// Awaits means that the first Pods must wait: the pool's template has not been copied, or its NetworkPolicy does not exist. It is ignored
	// if the pool has Pods.
	Awaits bool
	// Conditions are added to the pool's status, which has one writer.
	Conditions []patch.Condition
}

// Gater returns the gate of a pool.
type Gater interface {
	// Of returns a pool's gate from memory or the cache. It is called in every reconcile.
	Of(ctx context.Context, pool *v1alpha1.SandboxPool) (Gate, error)
	// OnGateChange registers f, which is called when a pool's gate may have changed. f must not block.
	OnGateChange(f func(pool types.NamespacedName))
}

// Listeners notifies its listeners when a pool's gate may have changed. A Gater embeds it. The zero value is ready.
type Listeners struct {
	mu  sync.Mutex
	all []func(types.NamespacedName)
}

// OnGateChange implements Gater.
func (l *Listeners) OnGateChange(f func(types.NamespacedName)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, f)
}

// Announce notifies all listeners.
func (l *Listeners) Announce(pool types.NamespacedName) {
	l.mu.Lock()
	all := l.all
	l.mu.Unlock()
	for _, f := range all {
		f(pool)
	}
}

func (r *Reconciler) gatherGate(ctx context.Context, s *snapshot) error {
	for _, asked := range r.opts.Gaters {
		one, err := asked.Of(ctx, s.Pool)
		if err != nil {
			return fmt.Errorf("reading the pool's gate: %w", err)
		}
		s.Paused = s.Paused || one.Paused
		s.Awaits = s.Awaits || one.Awaits
		s.Conditions = append(s.Conditions, one.Conditions...)
	}
	// A pool without a container can create no Pod, whatever the Gaters report.
	bare := len(s.Pool.Spec.Template.Spec.Containers) == 0
	s.Awaits = bare || s.Awaits && !slices.ContainsFunc(s.Pods, func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil && sandbox.PhaseOf(pod) != ""
	})
	return nil
}

// watchGates enqueues a pool whose gate may have changed.
func (r *Reconciler) watchGates(_ context.Context, q controllers.Queue) error {
	for _, asked := range r.opts.Gaters {
		asked.OnGateChange(func(pool types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: pool}) })
	}
	return nil
}
