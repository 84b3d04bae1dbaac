// SPDX-License-Identifier: Apache-2.0

package foreigncontroller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/pool"
)

var _ pool.Gater = (*Watch)(nil)

// PausedPool is Paused for a pool.
func (w *Watch) PausedPool(p *v1alpha1.SandboxPool) bool { return w.Paused(p) }

// Of implements pool.Gater.
func (w *Watch) Of(_ context.Context, p *v1alpha1.SandboxPool) (pool.Gate, error) {
	return pool.Gate{Paused: w.Paused(p)}, nil
}

// OnGateChange implements pool.Gater. It does nothing, because pools are reconciled every few seconds anyway.
func (w *Watch) OnGateChange(func(types.NamespacedName)) {}
