// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// EnvOf returns the Env under which a Pod's sandbox is reported. Pods of a pool without an Env lack the label, and so do Pods
// from before their pool's adoption; both are reported under the pool's name.
func EnvOf(pod *corev1.Pod) string {
	return cmp.Or(pod.Labels[v1alpha1.LabelEnv], pod.Labels[v1alpha1.SandboxPoolLabelKey])
}

// EnvOfPool returns the Env under which a pool is reported.
func EnvOfPool(pool metav1.Object) string {
	if env := pool.GetLabels()[v1alpha1.LabelEnv]; env != "" {
		return env
	}
	for _, ref := range pool.GetOwnerReferences() {
		if ref.Kind == v1alpha1.SandboxEnvOwnerKind {
			return ref.Name
		}
	}
	return pool.GetName()
}
