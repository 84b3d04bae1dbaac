// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"navix.sh/atoll/api/v1alpha1"
)

// E2B is the runtime that atoll-sandboxd serves.
const E2B = "e2b"

const (
	daemonName = "atoll-sandboxd" // of the program, the init container and the volume
	// daemonFolder is in the root, because another mount may be read-only, and no folder could be created below it.
	daemonFolder = "/.atoll"
	// imageUser is the user of Atoll's images. It is set explicitly, because an init container would otherwise have the Pod's, which may be
	// root.
	imageUser = 65532
)

// daemonSize is well above the program's size.
var daemonSize = resource.MustParse("128Mi")

// Lists reports whether a pool has the runtime of atoll-sandboxd.
func Lists(pool *v1alpha1.SandboxPoolSpec) bool {
	return slices.ContainsFunc(pool.Runtimes, func(r v1alpha1.SandboxRuntimeSpec) bool { return r.Name == E2B })
}

// Delivers reports whether Pods get atoll-sandboxd from the given image. They do not if the sandbox's image contains it, which its command
// or an annotation shows, or if there are arguments for an unknown entrypoint. Nor do Pods on their node's network, because the daemon's
// port would be the node's.
func Delivers(pool *v1alpha1.SandboxPoolSpec, image string) bool {
	containers := pool.Template.Spec.Containers
	if image == "" || !Lists(pool) || len(containers) == 0 || pool.Template.Spec.HostNetwork ||
		pool.Template.Annotations[v1alpha1.SandboxdAnnotationKey] == v1alpha1.SandboxdFromImage {
		return false
	}
	if c := &containers[0]; len(c.Command) > 0 {
		return path.Base(c.Command[0]) != daemonName
	}
	return len(containers[0].Args) == 0
}

// deliver adds the daemon to a Pod. An init container copies it to a volume. From there the first container starts it, read-only, with the
// container's own command behind it.
func deliver(pod *corev1.PodSpec, image string) {
	c := &pod.Containers[0]
	pod.Volumes = append(pod.Volumes, corev1.Volume{
		Name: daemonName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &daemonSize}},
	})
	pod.InitContainers = append([]corev1.Container{{
		Name: daemonName, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:      []string{"/" + daemonName, "--install", daemonFolder},
		Resources:    sameResources(&c.Resources),
		VolumeMounts: []corev1.VolumeMount{{Name: daemonName, MountPath: daemonFolder}},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: new(int64(imageUser)), RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}}, pod.InitContainers...)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: daemonName, MountPath: daemonFolder, ReadOnly: true})
	start := []string{path.Join(daemonFolder, daemonName), "--init"}
	if len(c.Command) > 0 {
		c.Args = slices.Concat([]string{"--"}, c.Command, c.Args)
	}
	c.Command = start
}

// sameResources returns the init container's resources, equal to those of the first container. The Pod's requests and quality of service
// then do not change, and a namespace that requires resources of every container accepts the Pod.
func sameResources(r *corev1.ResourceRequirements) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: common(r.Requests), Limits: common(r.Limits)}
}

// common returns the resources that need no device.
func common(list corev1.ResourceList) corev1.ResourceList {
	var out corev1.ResourceList
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if quantity, ok := list[name]; ok {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[name] = quantity.DeepCopy()
		}
	}
	return out
}
