// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// +kubebuilder:rbac:groups="",namespace=atoll-system,resources=configmaps,resourceNames=atoll-instance-types,verbs=list;watch

// Watcher maintains the catalogue of a cluster.
type Watcher struct {
	cache cache.Cache
	key   types.NamespacedName

	mu              sync.Mutex
	resourceVersion string
	known           Catalogue
}

// Watch adds a Watcher of the one ConfigMap to the manager. It has its own cache, because the manager's would hold every ConfigMap.
func Watch(mgr manager.Manager, namespace string) (*Watcher, error) {
	only, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{
			namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", ConfigMapName)},
		},
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("building the cache of instance types: %w", err)
	}
	if err := mgr.Add(only); err != nil {
		return nil, fmt.Errorf("adding the cache of instance types: %w", err)
	}
	return &Watcher{cache: only, key: types.NamespacedName{Namespace: namespace, Name: ConfigMapName}}, nil
}

// Source returns a source of catalogue changes for a controller.
func (w *Watcher) Source(h handler.TypedEventHandler[*corev1.ConfigMap, reconcile.Request]) source.Source {
	return source.Kind(w.cache, &corev1.ConfigMap{}, h)
}

// Catalogue returns the current catalogue, which is empty without the ConfigMap.
func (w *Watcher) Catalogue(ctx context.Context) (Catalogue, error) {
	stored := &corev1.ConfigMap{}
	err := w.cache.Get(ctx, w.key, stored)
	if apierrors.IsNotFound(err) {
		return Catalogue{}, nil
	}
	if err != nil {
		return Catalogue{}, fmt.Errorf("reading ConfigMap %s: %w", w.key, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if version := stored.ResourceVersion; version == "" || version != w.resourceVersion {
		w.known, w.resourceVersion = Parse(stored.Data), version
	}
	return w.known, nil
}
