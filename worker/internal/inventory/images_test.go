// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/inventory/inventorytest"
)

// A claim with an image gets a Pod whose node has pulled it, if one is idle. What is remembered of a node is bounded.
func TestAPodWhoseNodeHasPulledTheImageIsPreferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inventorytest.New(t)
		s.Lead()
		on := func(pod *corev1.Pod, node string) *corev1.Pod {
			pod.Spec.NodeName = node
			s.Update(func(st *inventory.State) {
				st.SetNode(&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: node},
					Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
				})
			})
			return pod
		}
		with := func(pod *corev1.Pod, image string) *corev1.Pod {
			pod.Spec.Containers[0].Image, pod.Status.ContainerStatuses[0].Image = image, image
			return pod
		}
		// want fails if a claim with an image gets another one of three idle Pods, of which 2 came last.
		want := func(image, pod string) {
			t.Helper()
			for i, node := range []string{"other", "pulled", "another"} {
				s.See(on(s.IdlePod(fmt.Sprint(i)), node))
			}
			s.Update(func(st *inventory.State) {
				hold := st.Take(st.Pool(inventorytest.Pool), image)
				if got := st.Held(hold).Name; got != pod {
					t.Errorf("a claim with image %s got Pod %s, want %s", image, got, pod)
				}
				st.Fail(hold)
			})
		}
		ran := with(on(s.ClaimedPod("ran", "01-east"), "pulled"), "tenant:1")
		s.See(ran)
		s.Gone(ran)
		want("tenant:1", "1")
		want("i:1", "2") // they all run it
		want("tenant:2", "2")
		// One that does not run yet says nothing about its node.
		starting := with(on(s.ClaimedPod("starting", "02-east"), "other"), "tenant:2")
		starting.Generation, starting.Status.ContainerStatuses[0].Image = 2, "i:1"
		s.See(starting)
		want("tenant:2", "2")
		for i := range 100 {
			s.See(with(on(s.ClaimedPod("many", fmt.Sprint(i, "-east")), "pulled"), fmt.Sprint("many:", i)))
		}
		want("tenant:1", "2")
		want("many:99", "1")
	})
}
