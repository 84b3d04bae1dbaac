// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/sandbox"
)

// Gate is what others know of a pool that bears on its keeping.
type Gate struct {
	// Paused: another controller keeps the pool. Nothing of it, and none of its
	// Pods, is written, deleted or created.
	Paused bool
	// Awaits: the pool's template has not been copied. A pool that has Pods all
	// the same, or what to make them from, keeps them.
	Awaits bool
	// Conditions are for the pool's status, which has one writer.
	Conditions []patch.Condition
}

// A Gater returns the gate of a pool.
type Gater interface {
	// Of is asked at every look, and answers from memory or from the cache.
	Of(ctx context.Context, pool *v1alpha1.SandboxPool) (Gate, error)
	// OnGateChange calls f when a pool's gate may have changed. f does not
	// block.
	OnGateChange(f func(pool types.NamespacedName))
}

// foundByOthers are the condition types that a gate may bring. One that no
// longer comes is taken away.
var foundByOthers = []string{v1alpha1.SandboxPoolConditionTemplateConsistent}

func (r *Reconciler) gatherGate(ctx context.Context, s *Snapshot) error {
	for _, asked := range r.gaters {
		one, err := asked.Of(ctx, s.Pool)
		if err != nil {
			return fmt.Errorf("reading the pool's gate: %w", err)
		}
		s.Paused = s.Paused || one.Paused
		s.Awaits = s.Awaits || one.Awaits
		s.Conditions = append(s.Conditions, one.Conditions...)
	}
	// Without a container no Pod can be made, whoever's fault that is.
	bare := len(s.Pool.Spec.Template.Spec.Containers) == 0
	s.Awaits = bare || s.Awaits && !slices.ContainsFunc(s.Pods, func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil && sandbox.PhaseOf(pod) != ""
	})
	return nil
}

// watchGates wakes a pool whose gate may have changed.
func (r *Reconciler) watchGates(_ context.Context, q controllers.Queue) error {
	for _, asked := range r.gaters {
		asked.OnGateChange(func(pool types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: pool}) })
	}
	return nil
}

// conclude writes what others have found into the pool's conditions.
func conclude(pool *v1alpha1.SandboxPool, found []patch.Condition, clk clock.PassiveClock) {
	pool.Status.Conditions = slices.DeleteFunc(pool.Status.Conditions, func(c metav1.Condition) bool {
		return slices.Contains(foundByOthers, c.Type) &&
			!slices.ContainsFunc(found, func(f patch.Condition) bool { return f.Type == c.Type })
	})
	for _, c := range found {
		patch.SetCondition(&pool.Status.Conditions, clk, pool.Generation, c)
	}
}
