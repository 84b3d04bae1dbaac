// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	startLeast = 200 * time.Millisecond
	startMost  = 800 * time.Millisecond
	swapLeast  = 50 * time.Millisecond
	swapMost   = 300 * time.Millisecond
)

// kubelet schedules Pods and runs their containers: a container follows its Pod, or its image, after a delay. The kubelet keeps its
// containers itself, so that they survive a restore of etcd. The caller holds the server's lock.
type kubelet struct {
	server  *server
	count   int
	running map[types.UID]corev1.ContainerStatus
}

func newKubelet(s *server) *kubelet {
	return &kubelet{server: s, running: map[types.UID]corev1.ContainerStatus{}}
}

// saw handles a change of a Pod. The caller holds the server's lock.
func (k *kubelet) saw(before, after *corev1.Pod) {
	switch {
	case after == nil:
		delete(k.running, before.UID)
	case after.DeletionTimestamp != nil:
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
		// If the Pod has been deleted meanwhile, it needs no container.
		_, _ = k.server.update(n, func(o client.Object) (client.Object, error) {
			if o.GetUID() != uid {
				return nil, notFound(n)
			}
			return k.run(o.(*corev1.Pod)), nil
		})
	})
}

// run replaces the container by one of the Pod's current image, and reports it.
func (k *kubelet) run(pod *corev1.Pod) *corev1.Pod {
	main := pod.Spec.Containers[0]
	own, ok := k.running[pod.UID]
	if !ok || own.Image != main.Image {
		k.count++
		own = corev1.ContainerStatus{
			Name: main.Name, Image: main.Image, Ready: true, ContainerID: fmt.Sprintf("sim://%d-%08x", k.count, k.server.random.Uint32()),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}
		k.running[pod.UID] = own
	}
	pod.Spec.NodeName = nodeName
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.0.0.1"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{own}
	return pod
}

// restored reports the containers of the Pods in a restored etcd, and replaces those that do not match their Pods.
func (k *kubelet) restored() {
	k.server.mu.Lock()
	defer k.server.mu.Unlock()
	for _, object := range k.server.listLocked(podKind) {
		if pod, ok := object.(*corev1.Pod); ok && pod.DeletionTimestamp == nil {
			k.later(pod, swapLeast, swapMost)
		}
	}
}
