// SPDX-License-Identifier: Apache-2.0

package kubecatalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/hub/internal/catalog"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
)

func (s *Source) of(ref manifest.Ref) dynamic.ResourceInterface {
	if ref.Namespace == "" {
		return s.client.Resource(resources[ref.Kind])
	}
	return s.client.Resource(resources[ref.Kind]).Namespace(ref.Namespace)
}

// reconcile synchronizes one object with the catalogue. After an error the caller retries.
func (s *Source) reconcile(ctx context.Context, ref manifest.Ref, o *unstructured.Unstructured) error {
	switch {
	case o == nil, !isSource(o) && !hasFinalizer(o):
		return nil // absence is not deletion
	case o.GetDeletionTimestamp() != nil && !hasFinalizer(o):
		return nil
	case o.GetDeletionTimestamp() != nil:
		if err := s.opts.Catalog.Drop(ctx, ref, s.by(o)); err != nil {
			return err
		}
		return s.finalize(ctx, ref, o, false)
	case !hasFinalizer(o):
		return s.finalize(ctx, ref, o, true) // the update triggers another call
	}
	var refused string
	err := s.opts.Catalog.Take(ctx, catalog.Sourced{
		UID: string(o.GetUID()), Generation: o.GetGeneration(), By: s.by(o), Manifest: manifest.Object(o.Object),
	})
	if err != nil {
		p := problem.FromError(err)
		switch p.Reason {
		case problem.Invalid, problem.Quota, problem.Misconfigured:
			refused = cmp.Or(p.Message, err.Error())
		default:
			return err
		}
	}
	return s.writeConditions(ctx, ref, o, conditions(o.GetGeneration(), refused, s.opts.Catalog.Summarize(ref)))
}

func (s *Source) by(o *unstructured.Unstructured) string { return cmp.Or(author(o), "kubernetes") }

// finalize adds the hub's finalizer to an object, or removes it.
func (s *Source) finalize(ctx context.Context, ref manifest.Ref, o *unstructured.Unstructured, on bool) error {
	finalizers := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == v1alpha1.CatalogFinalizer })
	if on {
		finalizers = append(finalizers, v1alpha1.CatalogFinalizer)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	_, err = s.of(ref).Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the object has changed, which triggers another call
	}
	if err != nil {
		return fmt.Errorf("writing the finalizer of %s: %w", ref, err)
	}
	return nil
}

// writeConditions writes the conditions of an object if they differ.
func (s *Source) writeConditions(ctx context.Context, ref manifest.Ref, o *unstructured.Unstructured, want []metav1.Condition) error {
	body := status(o, want, s.opts.Clock.Now())
	if body == nil {
		return nil
	}
	metadata := map[string]any{"name": ref.Name, "uid": string(o.GetUID())}
	if ref.Namespace != "" {
		metadata["namespace"] = ref.Namespace
	}
	_, err := s.of(ref).ApplyStatus(ctx, ref.Name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": ref.Kind, "metadata": metadata, "status": body,
	}}, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the status of %s: %w", ref, err)
	}
	return nil
}
