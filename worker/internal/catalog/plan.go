// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/manifest"
)

// plan returns what an apply would do. It makes a dry run on the API server, which includes admission and quota.
func (w *Writer) plan(ctx context.Context, j *job) objectResult {
	if j.object == nil {
		return *refuse("Invalid", "%s has no manifest", j.ref)
	}
	is, refused := w.look(ctx, j)
	if refused != nil {
		return *refused
	}
	got, err := w.write(ctx, j, metav1.DryRunAll)
	if err != nil {
		return failure(err)
	}
	after := manifest.Object(got.Object).Clean()
	if is == nil {
		return objectResult{state: federationv1.CatalogOutcome_WOULD_CREATE, changes: manifest.Diff(manifest.Object{},
			manifest.Object{"spec": after["spec"]})}
	}
	changes := manifest.Diff(manifest.Object(is.Object).Clean(), after)
	if len(changes) == 0 {
		return objectResult{state: federationv1.CatalogOutcome_UNCHANGED}
	}
	return objectResult{state: federationv1.CatalogOutcome_WOULD_CHANGE, changes: changes}
}
