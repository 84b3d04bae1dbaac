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
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/visibility"
	"navix.sh/atoll/worker/internal/memory"
)

// Template has the fields of a SandboxTemplate that pools are made from. It is shared and must not be modified.
type Template struct {
	Name, Version string
	// Revision is a hash of Spec; a new description or label does not change it.
	Revision            string
	Labels, Annotations map[string]string
	// Spec is the document of Fields. As a document, it keeps fields of a Pod template that this build does not know.
	Spec map[string]any
	// Visibility restricts who sees the template; nil means every caller.
	Visibility *v1alpha1.TemplateVisibility
	// Hidden means that the template exists but the caller does not see it. Only Name is set then.
	Hidden bool
	// Resources are those of the first container, or nil if there are none or they are unreadable.
	Resources *corev1.ResourceRequirements
}

// Fields returns the fields that a template and a pool's spec have in common.
func Fields() []string { return []string{"template", "idleImage", "runtimes"} }

// WithoutToken edits a pool's spec, given as a document, so that its Pods get no ServiceAccount token unless the spec says otherwise.
// Tenants would have access to the token.
func WithoutToken(spec map[string]any) {
	const field = "automountServiceAccountToken"
	template, _ := spec["template"].(map[string]any)
	if pod, ok := template["spec"].(map[string]any); ok && pod[field] == nil {
		pod[field] = false
	}
}

// Object returns an empty SandboxTemplate, as a document.
func Object() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SandboxTemplate"))
	return obj
}

// Read returns the template in the document of a SandboxTemplate.
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
	if t.Visibility, err = visibilityIn(spec); err != nil {
		return nil, fmt.Errorf("reading SandboxTemplate %s: %w", t.Name, err)
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

// Cache returns templates from an informer's cache. It hashes each version once, because a hash would be most of the cost of a reconcile.
// Memory is bounded by the templates that are read (I10).
type Cache struct {
	reader client.Reader
	live   client.Reader
	clock  clock.PassiveClock

	mu      sync.Mutex
	known   map[string]known
	callers *memory.Map[visibility.Caller] // by namespace
}

type known struct {
	resourceVersion string
	template        *Template
}

// NewCache returns a Cache over a reader of documents. live reads Namespaces. A nil clock is the system's.
func NewCache(reader, live client.Reader, clk clock.PassiveClock) *Cache {
	if clk == nil {
		clk = clock.RealClock{}
	}
	return &Cache{reader: reader, live: live, clock: clk, known: map[string]known{},
		callers: memory.New[visibility.Caller](callerTTL, maxCallers, nil)}
}

// Get returns a template, or nil without an error if it does not exist.
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
