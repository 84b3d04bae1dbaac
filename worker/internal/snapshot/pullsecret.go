// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// HasPullSecret reports whether a snapshot names the Env's pull secret.
func HasPullSecret(spec *v1alpha1.SandboxPoolSpec, envName string) bool {
	return slices.Contains(spec.Template.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: v1alpha1.EnvImagePullSecretName(envName)})
}

// addPullSecret adds a pull secret to the document of a pool's spec, unless it is there.
func addPullSecret(spec map[string]any, name string) {
	secrets := WithPullSecret(spec, name)
	// It fails only where the Pod template is no object, which is refused elsewhere.
	_ = unstructured.SetNestedSlice(spec, secrets, pullSecretPath...)
}

// WithPullSecret returns the list of pull secrets of a pool's spec, with one more if it was not there.
func WithPullSecret(spec map[string]any, name string) []any {
	secrets, _, _ := unstructured.NestedSlice(spec, pullSecretPath...)
	if slices.ContainsFunc(secrets, func(secret any) bool {
		ref, _ := secret.(map[string]any)
		return ref["name"] == name
	}) {
		return secrets
	}
	return append(secrets, map[string]any{"name": name})
}
