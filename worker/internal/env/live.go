// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// LivePool reads the document of a pool live, and tells whether it is what was observed; nil if it is gone.
func LivePool(ctx context.Context, live client.Reader, observed *v1alpha1.SandboxPool) (doc *unstructured.Unstructured, same bool, err error) {
	doc = &unstructured.Unstructured{}
	doc.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SandboxPool"))
	if err := live.Get(ctx, client.ObjectKeyFromObject(observed), doc); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("reading pool %s live: %w", observed.Name, err)
	}
	same, err = unchanged(doc, observed, &observed.Spec)
	return doc, same, err
}

// unchanged compares a live document with what was observed, by content as well: an etcd that was set back gives uid,
// generation and resourceVersion out a second time, for something else, while what was observed is of the time before.
func unchanged[T any](live *unstructured.Unstructured, observed client.Object, spec *T) (bool, error) {
	if live.GetUID() != observed.GetUID() || live.GetGeneration() != observed.GetGeneration() {
		return false, nil
	}
	content, err := json.Marshal(live.Object["spec"])
	if err != nil {
		return false, fmt.Errorf("encoding the spec of %s: %w", live.GetName(), err)
	}
	read := new(T)
	if err := json.Unmarshal(content, read); err != nil {
		return false, fmt.Errorf("reading the spec of %s: %w", live.GetName(), err)
	}
	return sameJSON(read, spec), nil
}
