// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/manifest"
)

// remove deletes an object that this catalogue has created and no longer names. Pools of an Env wind down by their finalizers.
func (w *Writer) remove(ctx context.Context, j *job) objectResult {
	is, refused := w.look(ctx, j)
	switch {
	case refused != nil && refused.reason == "Terminating":
		return objectResult{state: federationv1.CatalogOutcome_REMOVED}
	case refused != nil:
		return *refused
	case is == nil:
		return objectResult{state: federationv1.CatalogOutcome_ABSENT}
	}
	if _, _, made := madeBy(is); !made {
		return *refuse("NotTheCatalogues", "the catalogue has not created it")
	}
	if owner := otherOwner(is); owner != "" {
		return *refuse("Owned", "%s owns fields of it, so it stays; delete it in the cluster, or remove its annotation to keep it for good",
			owner)
	}
	if j.ref.Kind == manifest.TemplateKind {
		if by, err := w.naming(ctx, j.ref.Name); err != nil {
			return failure(err)
		} else if by != "" {
			return objectResult{state: federationv1.CatalogOutcome_PENDING, reason: "InUse", message: "Env " + by + " names it"}
		}
	}
	if j.plan {
		return objectResult{state: federationv1.CatalogOutcome_WOULD_REMOVE}
	}
	uid, version := is.GetUID(), is.GetResourceVersion()
	err := w.of(j.ref).Delete(ctx, j.ref.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID: &uid, ResourceVersion: &version,
	}})
	switch {
	case apierrors.IsConflict(err): // it has changed, and is checked again
		return objectResult{state: federationv1.CatalogOutcome_PENDING, reason: "Changed", message: err.Error()}
	case err != nil && !apierrors.IsNotFound(err):
		return failure(err)
	}
	return objectResult{state: federationv1.CatalogOutcome_REMOVED}
}

// otherOwner returns a field manager of the spec that is not Atoll's.
func otherOwner(is *unstructured.Unstructured) string {
	for _, f := range is.GetManagedFields() {
		if f.Subresource == "" && !strings.HasPrefix(f.Manager, "atoll-") && f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(),
			`"f:spec"`) {
			return f.Manager
		}
	}
	return ""
}

// naming returns an Env of the cluster that names a template, or "".
func (w *Writer) naming(ctx context.Context, template string) (by string, err error) {
	err = w.each(ctx, manifest.EnvKind, "", func(o *unstructured.Unstructured) {
		if env := manifest.Object(o.Object); env.Template() == template {
			by = env.Namespace() + "/" + env.Name()
		}
	})
	return by, err
}
