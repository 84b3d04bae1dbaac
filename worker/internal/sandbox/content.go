// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"navix.sh/atoll/api/v1alpha1"
)

// imagesOf returns the sandbox's images by container: those recorded at its release, before the idle image was put back, else
// those of the Pod.
func imagesOf(pod *corev1.Pod) map[string]string {
	if at := parseStringMap(pod.Annotations[v1alpha1.SandboxRunningImagesAnnotationKey]); at != nil {
		return at
	}
	return specImages(pod)
}

// specImages returns the images of a Pod's spec by container.
func specImages(pod *corev1.Pod) map[string]string {
	images := make(map[string]string, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		images[pod.Spec.Containers[i].Name] = pod.Spec.Containers[i].Image
	}
	return images
}

// containerOf returns the sandbox's current or last container. A container from before a swap belongs to another tenant.
func containerOf(pod *corev1.Pod, s *State) string {
	if s.ContainerID != "" {
		return s.ContainerID
	}
	if id := ContainerID(pod); id != s.SwapFrom {
		return id
	}
	return ""
}

// resourcesOf returns the sums of the containers' requests, or of their limits without requests. A sum is "" if there are neither.
func resourcesOf(pod *corev1.Pod) (cpu, memory string) {
	sum := func(name corev1.ResourceName) string {
		var total resource.Quantity
		for i := range pod.Spec.Containers {
			r := &pod.Spec.Containers[i].Resources
			q, ok := r.Requests[name]
			if !ok {
				q = r.Limits[name]
			}
			total.Add(q)
		}
		if total.IsZero() {
			return ""
		}
		return total.String()
	}
	return sum(corev1.ResourceCPU), sum(corev1.ResourceMemory)
}
