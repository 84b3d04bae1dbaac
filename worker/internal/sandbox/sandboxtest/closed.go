// SPDX-License-Identifier: Apache-2.0

// Package sandboxtest provides Pods for tests of the packages that decide about Pods.
package sandboxtest

import corev1 "k8s.io/api/core/v1"

// Close changes a Pod spec with one container so that nothing outlives a swap and the Pod may return to idle.
func Close(spec *corev1.PodSpec) {
	spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), Sysctls: []corev1.Sysctl{
		{Name: "kernel.shm_rmid_forced", Value: "1"}, {Name: "kernel.msgmni", Value: "0"},
		{Name: "kernel.sem", Value: "250 32000 32 0"}, {Name: "fs.mqueue.queues_max", Value: "0"},
	}}
	main := &spec.Containers[0]
	main.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)}
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "no-shm", MountPath: "/dev/shm"})
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: "no-shm", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}},
	})
}
