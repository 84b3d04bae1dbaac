// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// Template is a SandboxTemplate as far as pools are made from it. It is shared and must not be changed.
type Template struct {
	Name, Version string
	// Revision is a hash of Spec: a new description or a label makes no new one.
	Revision            string
	Labels, Annotations map[string]string
	// Spec is the document of Fields, so that what this build does not know of a Pod template reaches the pool.
	Spec map[string]any
	// Resources are those of the first container; nil if there is none, or none that can be read.
	Resources *corev1.ResourceRequirements
}

// Fields are what a template and a pool's spec have in common.
func Fields() []string { return []string{"template", "idleImage", "runtimes"} }

// Object returns an empty SandboxTemplate, as a document.
func Object() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SandboxTemplate"))
	return obj
}

// Read returns what the document of a SandboxTemplate gives to pools.
func Read(obj *unstructured.Unstructured) (*Template, error) {
	spec, _, err := unstructured.NestedMap(obj.Object, "spec")
	if err != nil {
		return nil, fmt.Errorf("reading SandboxTemplate %s: %w", obj.GetName(), err)
	}
	t := &Template{Name: obj.GetName(), Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(), Spec: map[string]any{}}
	t.Version, _ = spec["version"].(string)
	for _, field := range Fields() {
		if value, ok := spec[field]; ok {
			t.Spec[field] = value
		}
	}
	content, err := json.Marshal(t.Spec)
	if err != nil {
		return nil, fmt.Errorf("encoding SandboxTemplate %s: %w", t.Name, err)
	}
	sum := sha256.Sum256(content)
	t.Revision = hex.EncodeToString(sum[:8])
	var typed v1alpha1.SandboxPoolSpec
	if json.Unmarshal(content, &typed) == nil && len(typed.Template.Spec.Containers) > 0 {
		t.Resources = &typed.Template.Spec.Containers[0].Resources
	}
	return t, nil
}

// Cache returns templates from an informer's cache, and hashes each version of one once: a hash at every look would be most
// of the look. Memory is bounded by the templates that are asked for (I10).
type Cache struct {
	reader client.Reader

	mu    sync.Mutex
	known map[string]known
}

type known struct {
	resourceVersion string
	template        *Template
}

// NewCache returns a Cache over a reader of documents.
func NewCache(reader client.Reader) *Cache {
	return &Cache{reader: reader, known: map[string]known{}}
}

// Get returns a template; nil without an error if there is none of the name.
func (c *Cache) Get(ctx context.Context, name string) (*Template, error) {
	obj := Object()
	err := c.reader.Get(ctx, types.NamespacedName{Name: name}, obj, client.UnsafeDisableDeepCopy)
	c.mu.Lock()
	defer c.mu.Unlock()
	if apierrors.IsNotFound(err) {
		delete(c.known, name)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading SandboxTemplate %s: %w", name, err)
	}
	if k, ok := c.known[name]; ok && k.resourceVersion == obj.GetResourceVersion() {
		return k.template, nil
	}
	t, err := Read(obj)
	if err != nil {
		return nil, err
	}
	c.known[name] = known{resourceVersion: obj.GetResourceVersion(), template: t}
	return t, nil
}
