// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/runtimes"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	nameSuffix = 8
	// maxBase leaves room for the suffix in the Pod's name, which is also its host name.
	maxBase = 63 - 1 - nameSuffix
)

// podName returns a new name. This process chooses it, not the API server, so that the Pod can be expected before it exists.
func podName(pool *v1alpha1.SandboxPool) string {
	base := pool.Name
	if len(base) > maxBase {
		base = base[:maxBase]
	}
	return base + "-" + rand.String(nameSuffix)
}

// revisionOf returns a hash of everything that Pods are created from, including the pool's runtimes and the image of atoll-sandboxd.
func revisionOf(spec *v1alpha1.SandboxPoolSpec, sandboxd string) (string, error) {
	template := spec.Template.DeepCopy()
	runtimes.Render(spec, &template.Spec, sandboxd)
	return hashOf(template, spec)
}

// unrenderedRevisionOf returns the revision as computed before runtimes became part of Pods. Pods that carry it are not replaced for a
// missing port and probe, because otherwise an update of the worker would replace every warm Pod. Any other change of the template changes
// this revision as well. It is "" if the Pods get the daemon from the worker, because older Pods lack it.
func unrenderedRevisionOf(spec *v1alpha1.SandboxPoolSpec, sandboxd string) (string, error) {
	if runtimes.Delivers(spec, sandboxd) {
		return "", nil
	}
	return hashOf(&spec.Template, spec)
}

func hashOf(template *corev1.PodTemplateSpec, spec *v1alpha1.SandboxPoolSpec) (string, error) {
	data, err := json.Marshal(struct {
		Template  corev1.PodTemplateSpec
		IdleImage string
		Policy    v1alpha1.PodCreationImagePolicy
	}{*template, spec.IdleImage, spec.PodCreationImagePolicy})
	if err != nil {
		return "", fmt.Errorf("encoding pod template: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// newPod returns an idle Pod with labels, annotations and finalizer. A claim's patch cannot add to a missing map, and a finalizer that is
// added later may come too late.
func newPod(pool *v1alpha1.SandboxPool, revision, name, sandboxd string) *corev1.Pod {
	template := pool.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       pool.Namespace,
			Labels:          map[string]string{},
			Annotations:     map[string]string{},
			Finalizers:      []string{v1alpha1.SandboxProtectionFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("SandboxPool"))},
		},
		Spec: template.Spec,
	}
	maps.Copy(pod.Labels, template.Labels)
	maps.Copy(pod.Labels, sandbox.PoolLabels(pool.Name))
	delete(pod.Labels, v1alpha1.SandboxIDLabelKey)
	pod.Labels[v1alpha1.SandboxPhaseLabelKey] = v1alpha1.SandboxPhaseIdle
	if env := pool.Labels[v1alpha1.LabelEnv]; env != "" {
		pod.Labels[v1alpha1.LabelEnv] = env
	}
	if policy := pool.Annotations[v1alpha1.RecyclePolicyAnnotationKey]; policy != "" {
		pod.Annotations[v1alpha1.RecyclePolicyAnnotationKey] = policy
	}
	maps.Copy(pod.Annotations, template.Annotations)
	for _, key := range []string{v1alpha1.SandboxIDAnnotationKey, v1alpha1.SandboxClaimedAtAnnotationKey} {
		delete(pod.Annotations, key) // belongs to a sandbox
	}
	pod.Annotations[v1alpha1.TemplateRevisionAnnotationKey] = revision
	if pool.Spec.PodCreationImagePolicy != v1alpha1.PodCreationImagePolicyPoolDefaultImage &&
		pool.Spec.IdleImage != "" && len(pod.Spec.Containers) > 0 {
		pod.Spec.Containers[0].Image = pool.Spec.IdleImage
	}
	runtimes.Render(&pool.Spec, &pod.Spec, sandboxd)
	return pod
}
