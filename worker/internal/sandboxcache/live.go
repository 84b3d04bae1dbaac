// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// LivePool reads the document of a pool live, and returns whether it is the observed one. doc is nil if the pool is gone.
func LivePool(
	ctx context.Context, live client.Reader, observed *v1alpha1.SandboxPool,
) (doc *unstructured.Unstructured, same bool, err error) {
	doc = &unstructured.Unstructured{}
	doc.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SandboxPool"))
	if err := live.Get(ctx, client.ObjectKeyFromObject(observed), doc); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("reading pool %s live: %w", observed.Name, err)
	}
	same, err = Unchanged(doc, observed, &observed.Spec)
	return doc, same, err
}

// Unchanged compares a live document with the observed object. It also compares the content: a restored etcd issues uid, generation and
// resourceVersion again for other content, while the observed object may predate the restore.
func Unchanged[T any](live *unstructured.Unstructured, observed client.Object, spec *T) (bool, error) {
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
	return SameJSON(read, spec), nil
}

// UnchangedEnv is Unchanged for an Env. Its cached members have the snapshots that the document has in its status.
func UnchangedEnv(live *unstructured.Unstructured, observed *v1alpha1.SandboxEnv) (bool, error) {
	if live.GetUID() != observed.GetUID() || live.GetGeneration() != observed.GetGeneration() {
		return false, nil
	}
	content, err := json.Marshal(map[string]any{"spec": live.Object["spec"], "status": live.Object["status"]})
	if err != nil {
		return false, fmt.Errorf("encoding Env %s: %w", live.GetName(), err)
	}
	read := &v1alpha1.SandboxEnv{}
	if err := json.Unmarshal(content, read); err != nil {
		return false, fmt.Errorf("reading Env %s: %w", live.GetName(), err)
	}
	FillMembers(read)
	return SameJSON(&read.Spec, &observed.Spec), nil
}

// SameJSON compares values by their decoded JSON, because raw bytes, such as a runtime's config, may differ in spacing.
func SameJSON[T any](a, b T) bool {
	if equality.Semantic.DeepEqual(a, b) {
		return true
	}
	decode := func(value T) (decoded any) {
		content, err := json.Marshal(value)
		if err != nil || json.Unmarshal(content, &decoded) != nil {
			return err
		}
		return decoded
	}
	return reflect.DeepEqual(decode(a), decode(b))
}
