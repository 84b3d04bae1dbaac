// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

// pooled is a Pod of a pool, as it is decoded: it shares nothing with another one.
func pooled(i int, pool, phase string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", pool, i), Namespace: "default", UID: types.UID(fmt.Sprint(pool, i)),
			Labels:      map[string]string{v1alpha1.SandboxPoolLabelKey: pool, v1alpha1.SandboxPhaseLabelKey: phase},
			Annotations: map[string]string{"same": "x", v1alpha1.SandboxIdleSinceAnnotationKey: fmt.Sprint(i)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxPool", Name: pool, UID: types.UID(pool), Controller: new(true),
			}},
			Finalizers: []string{v1alpha1.SandboxProtectionFinalizer},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%3), Containers: []corev1.Container{{Name: "main", Image: pool + ":1"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.0.%d", i), HostIP: fmt.Sprintf("10.1.0.%d", i%3),
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
			},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: pool + ":1", ContainerID: fmt.Sprint("c", i)}},
		},
	}
}

// Idle Pods of a pool share their spec, labels and owners, and no Pod looks otherwise than it does alone.
func TestPodsOfAPoolShareWhatIsEqual(t *testing.T) {
	transform := Transform(&corev1.Pod{})
	cached := func(pod *corev1.Pod) *corev1.Pod {
		t.Helper()
		alone, err := stripPod(pod.DeepCopy())
		must.Succeed(t, err)
		got, err := transform(pod)
		must.Succeed(t, err)
		again, err := transform(got.(*corev1.Pod).DeepCopy())
		if err != nil || !apiequality.Semantic.DeepEqual(got, alone) || !apiequality.Semantic.DeepEqual(again, alone) {
			t.Errorf("%s is cached as %+v, want %+v", pod.Name, got, alone)
		}
		return got.(*corev1.Pod)
	}
	const idle, running = v1alpha1.SandboxPhaseIdle, v1alpha1.SandboxPhaseRunning
	a, b, other := cached(pooled(1, "p", idle)), cached(pooled(2, "p", idle)), cached(pooled(1, "q", idle))
	claimed, c := cached(pooled(3, "p", running)), cached(pooled(4, "p", idle))
	sameMap := func(x, y map[string]string) bool { return reflect.ValueOf(x).Pointer() == reflect.ValueOf(y).Pointer() }
	for _, one := range []*corev1.Pod{b, c, claimed} {
		if &one.Spec.Containers[0] != &a.Spec.Containers[0] || &one.OwnerReferences[0] != &a.OwnerReferences[0] ||
			&one.Finalizers[0] != &a.Finalizers[0] {
			t.Errorf("%s shares no spec, owner or finalizer with %s", one.Name, a.Name)
		}
		if sameMap(one.Labels, a.Labels) != (one != claimed) || sameMap(one.Annotations, a.Annotations) {
			t.Errorf("%s has labels of its own: %t", one.Name, !sameMap(one.Labels, a.Labels))
		}
	}
	if &other.Spec.Containers[0] == &a.Spec.Containers[0] {
		t.Error("Pods of two pools share a spec that differs")
	}
	// A rollout: the old Pods stay as they are, the new ones share with each other.
	next := func(i int) *corev1.Pod {
		pod := pooled(i, "p", idle)
		pod.Spec.Containers[0].Image = "p:2"
		return cached(pod)
	}
	d, e := next(5), next(6)
	if &d.Spec.Containers[0] != &e.Spec.Containers[0] || a.Spec.Containers[0].Image != "p:1" {
		t.Errorf("after a rollout: %+v, %+v", d.Spec, a.Spec)
	}
}
