// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/e2e/must"
)

// A kubelet never starts a container twice for one reason, whatever else is written to the Pod meanwhile. kwok would: it
// also plays a Stage that was due on an older version of the Pod. So every Pod is written to at about the moment when
// its swapped container is due to start.
func TestWritesDuringASwapDoNotStartContainersTwice(t *testing.T) {
	t.Parallel()
	const pods, swaps = 12, 4
	pull := 300 * time.Millisecond // the default

	s := create(t, newPod(imageA))
	api := s.client.CoreV1().Pods(s.pod.Namespace)
	for range pods - 1 {
		_, err := api.Create(s.ctx, newPod(imageA), metav1.CreateOptions{})
		must.Succeed(t, err)
	}
	watcher, err := api.Watch(s.ctx, metav1.ListOptions{})
	must.Succeed(t, err)
	defer watcher.Stop()

	patch := func(name, patch string) {
		if _, err := api.Patch(s.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
	var writes sync.WaitGroup
	defer writes.Wait()
	seen := map[string]string{} // container ID by Pod and restart count
	for done := 0; done < pods; {
		select {
		case <-s.ctx.Done():
			t.Fatalf("%d of %d pods are done", done, pods)
		case event := <-watcher.ResultChan():
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || len(pod.Status.ContainerStatuses) == 0 {
				continue
			}
			c := pod.Status.ContainerStatuses[0]
			// One more key per state keeps each from being acted on twice.
			key := fmt.Sprintf("%s restart %d terminated %t", pod.Name, c.RestartCount, c.State.Terminated != nil)
			if id, again := seen[key]; again {
				if id != c.ContainerID {
					t.Fatalf("%s: container %s became %s", key, id, c.ContainerID)
				}
				continue
			}
			seen[key] = c.ContainerID
			switch {
			case c.State.Terminated != nil:
				writes.Go(func() {
					<-time.After(pull + rand.N(10*time.Millisecond))
					patch(pod.Name, fmt.Sprintf(`{"metadata":{"annotations":{"noise":"%d"}}}`, c.RestartCount))
				})
			case c.RestartCount < swaps:
				patch(pod.Name, fmt.Sprintf(`{"spec":{"containers":[{"name":"c0","image":"registry.test/swap:%d"}]}}`, c.RestartCount))
			default:
				done++
			}
		}
	}
}
