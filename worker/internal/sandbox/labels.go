// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
)

// IDOf is the sandbox on a Pod; "" if there is none. A claim writes it twice, and a label is the one that is edited.
func IDOf(pod *corev1.Pod) string {
	if id := pod.Annotations[v1alpha1.SandboxIDAnnotationKey]; id != "" {
		return id
	}
	return pod.Labels[v1alpha1.SandboxIDLabelKey]
}

// PhaseOf is the phase that a Pod is in. A Pod without a sandbox is in the one that its label says. That of a sandbox is told
// by what every transition writes beside the label, where the label contradicts it: a label is edited with one command, and
// what looks idle is handed to the next tenant (I1, I13).
func PhaseOf(pod *corev1.Pod) Phase {
	label, a := Phase(pod.Labels[v1alpha1.SandboxPhaseLabelKey]), pod.Annotations
	ended := a[v1alpha1.SandboxStopReasonAnnotationKey] != "" || a[v1alpha1.SandboxTerminatedAtAnnotationKey] != ""
	switch {
	case IDOf(pod) == "" && label == Idle && a[v1alpha1.SandboxClaimedAtAnnotationKey] != "":
		return "" // it was somebody's, and nothing says that it was reset
	case IDOf(pod) == "", ended && label == Stopping:
		return label
	case ended:
		// Also where it was stopping: whether its Pod was being reset is not worth finding out, it is replaced.
		return Failed
	case a[v1alpha1.SandboxStartedAtAnnotationKey] != "":
		return Running
	}
	return Starting
}

// PoolOf reads which pool a Pod belongs to; the name is empty if it belongs to none. Its owner tells, and the label only where
// it has none: that can be edited with one command, too.
func PoolOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: PoolName(pod)}
}

// PoolName is the name in PoolOf. Any object that is no Pod of a pool's has none.
func PoolName(object metav1.Object) string {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.Kind == poolKind.Kind {
		if group, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && group.Group == poolKind.Group {
			return owner.Name
		}
	}
	return object.GetLabels()[v1alpha1.SandboxPoolLabelKey]
}

// PoolLabels are those by which a pool's Pods are selected.
func PoolLabels(pool string) map[string]string {
	return map[string]string{
		v1alpha1.ManagedByLabelKey:   v1alpha1.ManagedBySandboxAPIServer,
		v1alpha1.SandboxPoolLabelKey: pool,
	}
}

var poolKind = v1alpha1.GroupVersion.WithKind("SandboxPool").GroupKind()

// PoolPatch names the pool of a Pod again that has lost both its label and its owner.
func PoolPatch(pod *corev1.Pod, pool string) []byte {
	p := newPatch(256)
	p.testUID(pod)
	p.testMember(labelsPath, nil, v1alpha1.SandboxPoolLabelKey)
	p.setLabel(v1alpha1.SandboxPoolLabelKey, pool)
	return p.bytes()
}

// Mislabelled lists the labels of a Pod that are not as they were written last, with the values that they had; nil if all of
// them are right.
func Mislabelled(pod *corev1.Pod) map[string]string {
	var wrong map[string]string // hardly any Pod has one, and every Pod is asked at each look at its pool
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
