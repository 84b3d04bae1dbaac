// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// unchangedGeneration is the metadata.generation of a Pod whose spec has never changed.
const unchangedGeneration = 1

// Runs reports whether the Pod's first container runs image now: its spec names it, and the kubelet reports a running and ready
// container of it.
func Runs(pod *corev1.Pod, image string) bool {
	if len(pod.Spec.Containers) == 0 || !SameImage(pod.Spec.Containers[0].Image, image) {
		return false
	}
	cs := mainStatus(pod)
	if !runsReady(cs) || cs.ContainerID == "" {
		return false
	}
	return pod.Generation == unchangedGeneration || reports(cs, image)
}

// reports compares a kubelet's report about a container with a reference. It matches a reference by digest against the image id
// as well, because the kubelet's name for such an image can be a tag.
func reports(cs *corev1.ContainerStatus, image string) bool {
	if SameImage(cs.Image, image) {
		return true
	}
	_, digest, found := strings.Cut(image, "@")
	return found && strings.HasSuffix(cs.ImageID, "@"+digest)
}

// ContainerID returns the id that the kubelet last reported for the first container.
func ContainerID(pod *corev1.Pod) string {
	if cs := mainStatus(pod); cs != nil {
		return cs.ContainerID
	}
	return ""
}

// mainStatus returns the status of the first container, whose image is swapped.
func mainStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	if len(pod.Spec.Containers) == 0 {
		return nil
	}
	name := pod.Spec.Containers[0].Name
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == name {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// runsReady reports whether a container runs and is ready; cs is nil if its kubelet has reported none.
func runsReady(cs *corev1.ContainerStatus) bool {
	return cs != nil && cs.State.Running != nil && cs.Ready
}

// SameImage compares two image references as a container runtime does.
func SameImage(a, b string) bool {
	return a != "" && (a == b || canonicalImage(a) == canonicalImage(b))
}

// canonicalImage adds the defaults of a reference: registry, Docker's library, tag. It removes the tag if there is a digest;
// because the tag then has no effect.
func canonicalImage(ref string) string {
	name, digest, _ := strings.Cut(ref, "@")
	tag := ""
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name, tag = name[:i], name[i+1:]
	}
	host, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		name = "docker.io/library/" + name
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		name = "docker.io/" + name
	case host == "index.docker.io":
		name = "docker.io/" + rest
	}
	if host, rest, _ := strings.Cut(name, "/"); host == "docker.io" && !strings.Contains(rest, "/") {
		name = "docker.io/library/" + rest
	}
	if digest != "" {
		return name + "@" + digest
	}
	return name + ":" + cmp.Or(tag, "latest")
}
