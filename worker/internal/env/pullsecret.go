// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/atoll/api/v1alpha1"
)

// An Env's pull secret is a Secret of type kubernetes.io/dockerconfigjson, named ips- and the Env's name, that somebody
// puts beside the Env. Once it is there, every member's snapshot names it, next to those that the template names. It is
// never taken out again but by a refresh: a Secret that is deleted and made again, as a change of its type or some tools
// demand, would have every idle Pod replaced twice.
//
// A Pod that names a pull secret does not get those of its ServiceAccount from the API server.

// pullSecretPath is where a snapshot has them.
var pullSecretPath = []string{"template", "spec", "imagePullSecrets"}

// hasPullSecret reports whether a snapshot names the Env's pull secret.
func hasPullSecret(spec *v1alpha1.SandboxPoolSpec, envName string) bool {
	return slices.Contains(spec.Template.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: v1alpha1.EnvImagePullSecretName(envName)})
}

// addPullSecret adds a pull secret to the document of a pool's spec, unless it is there.
func addPullSecret(spec map[string]any, name string) {
	secrets := withPullSecret(spec, name)
	// It fails only where the Pod template is no object, which is refused elsewhere.
	_ = unstructured.SetNestedSlice(spec, secrets, pullSecretPath...)
}

// withPullSecret is the list of pull secrets of a pool's spec, with one more if it was not there.
func withPullSecret(spec map[string]any, name string) []any {
	secrets, _, _ := unstructured.NestedSlice(spec, pullSecretPath...)
	if slices.ContainsFunc(secrets, func(secret any) bool {
		ref, _ := secret.(map[string]any)
		return ref["name"] == name
	}) {
		return secrets
	}
	return append(secrets, map[string]any{"name": name})
}

func (r *Reconciler) gatherPullSecret(ctx context.Context, o *observation) error {
	if !r.pullSecrets {
		return nil
	}
	key := types.NamespacedName{Namespace: o.env.Namespace, Name: v1alpha1.EnvImagePullSecretName(o.env.Name)}
	err := r.client.Get(ctx, key, &corev1.Secret{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("looking for Secret %s: %w", key.Name, err)
	}
	o.pullSecret = err == nil
	return nil
}

func envOfPullSecret(_ context.Context, obj client.Object) []reconcile.Request {
	name, ok := strings.CutPrefix(obj.GetName(), v1alpha1.ImagePullSecretNamePrefix)
	if !ok || name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}
