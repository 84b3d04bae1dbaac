// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// The indexed fields.
const (
	byPool = "sandbox.pool" // of Pods: the pool's name; the cache adds the namespace

	byController = "pool.ownerUID"    // of pools: the uid of the owning Env
	byTemplate   = "env.templateName" // of Envs

	byPoolTemplate = "pool.templateName" // of pools, with or without an Env
)

// Index is an indexed field of one kind, with the function that computes its values.
type Index struct {
	Object  client.Object
	Field   string
	Extract client.IndexerFunc
}

// Indexes lists every index of the cache.
func Indexes() []Index {
	return []Index{
		{&corev1.Pod{}, byPool, poolOf},
		{&v1alpha1.SandboxPool{}, byController, controllers},
		{&v1alpha1.SandboxEnv{}, byTemplate, template},
		{&v1alpha1.SandboxPool{}, byPoolTemplate, poolTemplate},
	}
}

// AddIndexes adds the indexes of the given kinds, or all if none is given. Call it before the cache starts. Each index starts a watch of
// its kind.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer, only ...client.Object) error {
	for _, index := range Indexes() {
		if len(only) > 0 && !slices.ContainsFunc(only, func(kind client.Object) bool { return sameKind(kind, index.Object) }) {
			continue
		}
		if err := indexer.IndexField(ctx, index.Object, index.Field, index.Extract); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", index.Object, index.Field, err)
		}
	}
	return nil
}

// Indexers returns the indexes of one kind, for informers without a manager. Their values cover all namespaces together.
func Indexers(object client.Object) toolscache.Indexers {
	out := toolscache.Indexers{}
	for _, index := range Indexes() {
		if !sameKind(index.Object, object) {
			continue
		}
		out[index.Field] = func(o any) ([]string, error) {
			if object, ok := o.(client.Object); ok {
				return index.Extract(object), nil
			}
			return nil, nil
		}
	}
	return out
}

func sameKind(a, b client.Object) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

// poolOf indexes Pods by their pool. A Pod with an owner is indexed by it, even if its pool label was edited.
func poolOf(object client.Object) []string {
	if name := sandbox.PoolName(object); name != "" {
		return []string{name}
	}
	return nil
}

func controllers(object client.Object) []string {
	var uids []string
	for _, ref := range object.GetOwnerReferences() {
		uids = append(uids, string(ref.UID))
	}
	return uids
}

func template(object client.Object) []string {
	if env, ok := object.(*v1alpha1.SandboxEnv); ok {
		return []string{env.Spec.TemplateRef.Name}
	}
	return nil
}

func poolTemplate(object client.Object) []string {
	if pool, ok := object.(*v1alpha1.SandboxPool); ok && pool.Spec.TemplateName != "" {
		return []string{pool.Spec.TemplateName}
	}
	return nil
}
