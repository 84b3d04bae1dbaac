// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

// fixedGate always returns the same gate.
type fixedGate Gate

func (s fixedGate) Of(context.Context, *v1alpha1.SandboxPool) (Gate, error) {
	return Gate(s), nil
}
func (fixedGate) OnGateChange(func(types.NamespacedName)) {}

func TestGate(t *testing.T) {
	idle := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a",
		Labels:          map[string]string{v1alpha1.SandboxPhaseLabelKey: v1alpha1.SandboxPhaseIdle},
		Finalizers:      []string{v1alpha1.SandboxProtectionFinalizer},
		OwnerReferences: []metav1.OwnerReference{{Controller: new(true)}}}}
	for _, tt := range []struct {
		name       string
		containers int
		pods       []*corev1.Pod
		gate       Gate
		create     int
		scale      scaleReason
	}{
		{"no plugin objects", 1, nil, Gate{}, 2, scaleUp},
		{"the template is not there", 1, nil, Gate{Awaits: true}, 0, scaleAwaiting},
		{"the template is not there, and Pods are", 1, []*corev1.Pod{idle}, Gate{Awaits: true}, 1, scaleUp},
		{"there is nothing to make Pods from", 0, []*corev1.Pod{idle}, Gate{}, 0, scaleAwaiting},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &snapshot{Pool: &v1alpha1.SandboxPool{}, Pods: tt.pods, Settled: true}
			s.Pool.Spec.Replicas = 2
			s.Pool.Spec.Template.Spec.Containers = make([]corev1.Container, tt.containers)
			r := &Reconciler{opts: Options{Gaters: []Gater{fixedGate{}, fixedGate(tt.gate)}}}
			must.Succeed(t, r.gatherGate(t.Context(), s))
			if d := decide(*s); d.Create != tt.create || d.Scale != tt.scale {
				t.Errorf("got %d Pods, %s; want %d, %s", d.Create, d.Scale, tt.create, tt.scale)
			}
		})
	}
}
