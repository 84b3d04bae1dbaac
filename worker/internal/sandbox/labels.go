// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
)

// IDOf returns the id of the sandbox on a Pod, or "" if there is none. A claim writes the id as a label and as an annotation; only the
// label is easily edited.
func IDOf(pod *corev1.Pod) string {
	if id := pod.Annotations[v1alpha1.SandboxIDAnnotationKey]; id != "" {
		return id
	}
	return pod.Labels[v1alpha1.SandboxIDLabelKey]
}

// PhaseOf returns a Pod's phase. Without a sandbox, the label counts. If a Pod has a sandbox and its label contradicts the annotations that
// every transition writes, the annotations count: a label is easily edited, and a Pod that looks idle is assigned to the next tenant (I1,
// I13).
func PhaseOf(pod *corev1.Pod) Phase {
	label, a := Phase(pod.Labels[v1alpha1.SandboxPhaseLabelKey]), pod.Annotations
	ended := a[v1alpha1.SandboxStopReasonAnnotationKey] != "" || a[v1alpha1.SandboxTerminatedAtAnnotationKey] != ""
	switch {
	case IDOf(pod) == "" && label == Idle && a[v1alpha1.SandboxClaimedAtAnnotationKey] != "":
		return "" // had a sandbox, and nothing shows that it was reset
	case IDOf(pod) == "", ended && label == Stopping:
		return label
	case ended:
		// A stopping sandbox fails as well: finding out whether its Pod was being reset is not worth the effort, so the Pod is replaced.
		return Failed
	case a[v1alpha1.SandboxStartedAtAnnotationKey] != "":
		return Running
	}
	return Starting
}

// PoolOf returns the pool that a Pod belongs to; its name is empty if there is none. PoolOf reads the owner reference, and the label only
// if there is no owner, because a label is easily edited.
func PoolOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: PoolName(pod)}
}

// PoolName returns the name of PoolOf. It is empty for any object that is not a pool's Pod.
func PoolName(object metav1.Object) string {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.Kind == poolKind.Kind {
		if group, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && group.Group == poolKind.Group {
			return owner.Name
		}
	}
	return object.GetLabels()[v1alpha1.SandboxPoolLabelKey]
}

// PoolLabels are the labels by which a pool's Pods are selected.
func PoolLabels(pool string) map[string]string {
	return map[string]string{
		v1alpha1.ManagedByLabelKey:   v1alpha1.ManagedBySandboxAPIServer,
		v1alpha1.SandboxPoolLabelKey: pool,
	}
}

var poolKind = v1alpha1.GroupVersion.WithKind("SandboxPool").GroupKind()

// PoolPatch restores the pool label of a Pod that has lost both its label and its owner.
func PoolPatch(pod *corev1.Pod, pool string) []byte {
	p := newPatch(256)
	p.testUID(pod)
	p.testMember(labelsPath, nil, v1alpha1.SandboxPoolLabelKey)
	p.setLabel(v1alpha1.SandboxPoolLabelKey, pool)
	return p.bytes()
}

// Mislabelled returns a Pod's labels that differ from what was last written, with their correct values, or nil if all are correct.
func Mislabelled(pod *corev1.Pod) map[string]string {
	var wrong map[string]string // nil for nearly every Pod; every reconcile calls this for all Pods
	for _, label := range [...]struct{ key, value string }{
		{v1alpha1.SandboxPhaseLabelKey, string(PhaseOf(pod))},
		{v1alpha1.SandboxPoolLabelKey, PoolName(pod)},
		{v1alpha1.SandboxIDLabelKey, IDOf(pod)},
	} {
		if pod.Labels[label.key] == label.value {
			continue
		}
		if wrong == nil {
			wrong = map[string]string{}
		}
		wrong[label.key] = label.value
	}
	return wrong
}
