// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/pool"
)

var _ pool.Standings = (*Watch)(nil)

// HeldPool is Held of a pool.
func (w *Watch) HeldPool(p *v1alpha1.SandboxPool) bool { return w.Held(p) }

// Of implements pool.Standings.
func (w *Watch) Of(_ context.Context, p *v1alpha1.SandboxPool) (pool.Standing, error) {
	return pool.Standing{Held: w.Held(p)}, nil
}

// OnStanding implements pool.Standings. Pools are looked at every few seconds anyway, which is soon enough here.
func (w *Watch) OnStanding(func(types.NamespacedName)) {}
