// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/sandbox"
)

// protectPatch adds the protection finalizer to the Pod, or the pool as its owner, if it lacks them.
func protectPatch(pod *corev1.Pod, pool *v1alpha1.SandboxPool) ([]byte, error) {
	ops := patch.AsRead(pod)
	if !sandbox.IsProtected(pod) {
		ops = append(ops, patch.Add("/metadata/finalizers", append(slices.Clone(pod.Finalizers), v1alpha1.SandboxProtectionFinalizer)))
	}
	if orphaned(pod) {
		owner := *metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("SandboxPool"))
		ops = append(ops, patch.Add("/metadata/ownerReferences", append(slices.Clone(pod.OwnerReferences), owner)))
	}
	return patch.JSON(ops)
}

// relabelPatch restores manually edited labels. It tests the Pod's resourceVersion, because a claim or an end writes its own labels.
func relabelPatch(pod *corev1.Pod) ([]byte, error) {
	labels := maps.Clone(pod.Labels)
	maps.Copy(labels, sandbox.Mislabelled(pod))
	return patch.JSON(append(patch.AsRead(pod), patch.Replace("/metadata/labels", labels)))
}
