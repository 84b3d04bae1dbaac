// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/visibility"
)

const (
	// callerTTL is how long a Namespace's team and user are remembered. maxCallers bounds the remembered Namespaces.
	callerTTL  = 10 * time.Second
	maxCallers = 10_000
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// Seen returns a template as the Envs and pools of a namespace see it: with Hidden if they do not see it, and nil if it does not exist.
//
// Their team and user are the Namespace's, from its annotations or labels scheduling.navix.sh/team and …/user. An Env's own are written by
// the very users whom visibility restricts. The Namespace is read only for a template with rules. A Namespace that cannot be read, or has
// neither, sees what is open to every caller.
func (c *Cache) Seen(ctx context.Context, namespace, name string) (*Template, error) {
	t, err := c.Get(ctx, name)
	if err != nil || t == nil || (visibility.Caller{}).Sees(t.Visibility) {
		return t, err
	}
	caller, err := c.caller(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if !caller.Sees(t.Visibility) {
		return &Template{Name: name, Hidden: true}, nil
	}
	return t, nil
}

func (c *Cache) caller(ctx context.Context, namespace string) (visibility.Caller, error) {
	c.mu.Lock()
	caller, ok := c.callers.Get(c.clock.Now(), namespace)
	c.mu.Unlock()
	if ok {
		return caller, nil
	}
	object := &corev1.Namespace{}
	err := c.live.Get(ctx, types.NamespacedName{Name: namespace}, object)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return caller, fmt.Errorf("reading the team of namespace %s: %w", namespace, err)
	}
	of := func(key string) string { return cmp.Or(object.Annotations[key], object.Labels[key]) }
	caller = visibility.Caller{Team: of(v1alpha1.LabelTeam), User: of(v1alpha1.LabelUser)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.callers.Put(c.clock.Now(), namespace, caller)
	return caller, nil
}

// NotVisible returns the message for a template that a namespace does not see. It does not say who sees it.
func NotVisible(template, namespace string) string {
	return fmt.Sprintf("SandboxTemplate %q is not visible to namespace %s; its spec.visibility goes by %s and %s of the Namespace, which a "+
		"cluster administrator sets", template, namespace, v1alpha1.LabelTeam, v1alpha1.LabelUser)
}

// visibilityIn returns the visibility in the document of a template's spec.
func visibilityIn(spec map[string]any) (*v1alpha1.TemplateVisibility, error) {
	content, err := json.Marshal(spec["visibility"])
	if err != nil {
		return nil, fmt.Errorf("encoding spec.visibility: %w", err)
	}
	var v *v1alpha1.TemplateVisibility
	if err := json.Unmarshal(content, &v); err != nil {
		return nil, fmt.Errorf("spec.visibility: %w", err)
	}
	return v, nil
}
