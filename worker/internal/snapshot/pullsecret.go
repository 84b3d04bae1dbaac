// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navix.sh/atoll/api/v1alpha1"
)

// An Env's pull secret is a Secret of type kubernetes.io/dockerconfigjson, named ips- and the Env's name, that a user creates beside the
// Env. When it exists, every member's snapshot names it, next to those that the template names. Only a refresh removes it. A Secret may be
// deleted and created again, as a change of its type or some tools require, and would otherwise replace every idle Pod twice.
//
// The API server does not add the pull secrets of the ServiceAccount to a Pod that names one.

// pullSecretPath is the path of the pull secrets in a snapshot's spec.
var pullSecretPath = []string{"template", "spec", "imagePullSecrets"}

// HasPullSecret reports whether a snapshot names the Env's pull secret.
func HasPullSecret(spec *v1alpha1.SandboxPoolSpec, envName string) bool {
	return slices.Contains(spec.Template.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: v1alpha1.EnvImagePullSecretName(envName)})
}

// AddPullSecret adds a pull secret to the document of a pool's spec if it is missing.
func AddPullSecret(spec map[string]any, name string) {
	secrets := WithPullSecret(spec, name)
	// This fails only if the Pod template is not an object, which is rejected elsewhere.
	_ = unstructured.SetNestedSlice(spec, secrets, pullSecretPath...)
}

// WithPullSecret returns the pull secrets of a pool's spec, with name added if it was missing.
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
