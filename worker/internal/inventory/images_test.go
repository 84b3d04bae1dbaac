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
		take := func(image string) (name string) {
			s.Update(func(st *inventory.State) {
				hold := st.Take(st.Pool(inventorytest.Pool), image)
				name = st.Held(hold).Name
				st.Return(hold)
			})
			return name
		}
		ran := with(on(s.ClaimedPod("ran", "01-east"), "pulled"), "tenant:1")
		s.See(ran)
		s.Gone(ran)
		for i, node := range []string{"other", "pulled", "another"} {
			s.See(on(s.IdlePod(fmt.Sprint(i)), node))
		}
		if got := take("tenant:1"); got != "1" {
			t.Errorf("a claim with the image got Pod %s, want 1, whose node has pulled it", got)
		}
		if got := take("i:1"); got != "1" { // it came last, as its claim was not written
			t.Errorf("a claim without an image got Pod %s", got)
		}
		// One that does not run yet says nothing about its node.
		starting := with(on(s.ClaimedPod("starting", "02-east"), "other"), "tenant:2")
		starting.Status.ContainerStatuses[0].Image = "i:1"
		starting.Generation = 2
		s.See(starting)
		before := take("tenant:3")
		if got := take("tenant:2"); got != before {
			t.Errorf("a claim with an image that no node has pulled got Pod %s, want %s", got, before)
		}
		for i := range 100 {
			s.See(with(on(s.ClaimedPod("many", fmt.Sprint(i, "-east")), "pulled"), fmt.Sprint("many:", i)))
		}
		if got := take("tenant:1"); got != before {
			t.Errorf("a hundred images later a claim got Pod %s, want %s", got, before)
		}
		if got := take("many:99"); got != "1" {
			t.Errorf("a claim with the last image got Pod %s, want 1", got)
		}
	})
}
