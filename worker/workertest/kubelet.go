// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	startLeast = 200 * time.Millisecond
	startMost  = 800 * time.Millisecond
	swapLeast  = 50 * time.Millisecond
	swapMost   = 300 * time.Millisecond
)

// kubelet schedules Pods and runs their containers: a while after a Pod, or an image, is there, so is its container.
type kubelet struct {
	server     *server
	containers atomic.Uint64
}

func newKubelet(s *server) *kubelet { return &kubelet{server: s} }

// saw is called with the server's lock held.
func (k *kubelet) saw(before, after *corev1.Pod) {
	switch {
	case after == nil || after.DeletionTimestamp != nil:
	case before == nil || before.UID != after.UID:
		k.later(after, startLeast, startMost)
	case before.Spec.Containers[0].Image != after.Spec.Containers[0].Image:
		k.later(after, swapLeast, swapMost)
	}
}

func (k *kubelet) later(pod *corev1.Pod, least, most time.Duration) {
	n, uid := nameOf(pod), pod.UID
	wait := least + time.Duration(k.server.random.Int64N(int64(most-least)))
	time.AfterFunc(wait, func() {
		// A Pod that is gone by then needs no container.
		_, _ = k.server.update(n, func(o client.Object) (client.Object, error) {
			if o.GetUID() != uid {
				return nil, notFound(n)
			}
			return k.run(o.(*corev1.Pod)), nil
		})
	})
}

// run reports a new container of the image that the Pod has now.
func (k *kubelet) run(pod *corev1.Pod) *corev1.Pod {
	main := pod.Spec.Containers[0]
	if at := pod.Status.ContainerStatuses; len(at) == 1 && at[0].Image == main.Image {
		return pod // an earlier change that was taken back, or came twice
	}
	pod.Spec.NodeName = nodeName
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.0.0.1"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: main.Name, Image: main.Image, Ready: true, ContainerID: fmt.Sprintf("sim://%d", k.containers.Add(1)),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	return pod
}

// restored runs what the restored etcd asks for anew where it asks for something else than runs.
func (k *kubelet) restored() {
	k.server.mu.Lock()
	defer k.server.mu.Unlock()
	for _, object := range k.server.listLocked(podKind) {
		pod, ok := object.(*corev1.Pod)
		if ok && pod.DeletionTimestamp == nil && len(pod.Status.ContainerStatuses) == 0 {
			k.later(pod, startLeast, startMost)
		}
	}
}
