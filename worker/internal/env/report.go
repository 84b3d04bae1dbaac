// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/worker/internal/controllers"
)

// report writes this package's part of the Env's status if it changed. Server-side apply leaves alone the segments and the condition of the
// sync path, which has its own field manager.
func (r *Reconciler) report(ctx context.Context, o *observation, p *plan) error {
	wanted := compute(o, p, r.clock)
	r.metrics.setMembers(client.ObjectKeyFromObject(o.Env), wanted.segment.ObservedMembers)
	if wanted.written(&o.Env.Status) {
		return nil
	}
	body, err := wanted.document(o.Env, r.clock.Now())
	if err != nil {
		return fmt.Errorf("encoding the Env's status: %w", err)
	}
	err = r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: body}),
		client.FieldOwner(controllers.FieldManager), client.ForceOwnership)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// The Env was deleted, and perhaps created again. Either there is nothing to report, or a new event will come.
		return fmt.Errorf("applying the Env's status: %w", errStale)
	case err != nil:
		return fmt.Errorf("applying the Env's status: %w", err)
	}
	r.metrics.statusWrites.Inc()
	return nil
}
