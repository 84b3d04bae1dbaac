// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The CPU that a paused container keeps; see the package comment.
var (
	floor        = resource.MustParse("10m")
	floorRequest = resource.MustParse("1m") // for a request below its limit, or without one
)

// part is a container that runs as long as its Pod, and its position in the Pod.
type part struct {
	path   string // of the container, in the syntax of RFC 6901
	spec   *corev1.Container
	status *corev1.ContainerStatus // nil if not reported
}

// parts lists the containers whose CPU can be changed.
func parts(pod *corev1.Pod) []part {
	var out []part
	add := func(list string, containers []corev1.Container, statuses []corev1.ContainerStatus, runs func(*corev1.Container) bool) {
		for i := range containers {
			c := &containers[i]
			if !runs(c) {
				continue
			}
			p := part{path: fmt.Sprintf("/spec/%s/%d", list, i), spec: c}
			for j := range statuses {
				if statuses[j].Name == c.Name {
					p.status = &statuses[j]
				}
			}
			out = append(out, p)
		}
	}
	add("containers", pod.Spec.Containers, pod.Status.ContainerStatuses, func(*corev1.Container) bool { return true })
	// Init containers other than sidecars ended before the others began.
	add("initContainers", pod.Spec.InitContainers, pod.Status.InitContainerStatuses, func(c *corev1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
	return out
}

func cpuOf(r *corev1.ResourceRequirements) CPU {
	if r == nil {
		return CPU{}
	}
	var c CPU
	if q, ok := r.Requests[corev1.ResourceCPU]; ok {
		c.Request = &q
	}
	if q, ok := r.Limits[corev1.ResourceCPU]; ok {
		c.Limit = &q
	}
	return c
}

// floor returns the CPU of a paused container. It preserves whether the request equals the limit.
func (c CPU) floor() CPU {
	request := floorRequest
	if c.Request != nil && c.Limit != nil && c.Request.Cmp(*c.Limit) >= 0 {
		request = floor
	}
	return CPU{Request: least(c.Request, request), Limit: least(c.Limit, floor)}
}

func least(q *resource.Quantity, most resource.Quantity) *resource.Quantity {
	if q == nil || q.Cmp(most) <= 0 {
		return q
	}
	return &most
}

func (c CPU) equal(o CPU) bool { return same(c.Request, o.Request) && same(c.Limit, o.Limit) }

func same(a, b *resource.Quantity) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Cmp(*b) == 0
}
