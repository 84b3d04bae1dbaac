// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// sharedMemoryPath is where a container runtime mounts a file system of the Pod that all users can write to, unless the container has its
// own mount there.
const sharedMemoryPath = "/dev/shm"

// residue returns what in the Pod would outlive a swap of the first container. It reads the Pod as stored, and so includes changes by
// webhooks.
func residue(spec *corev1.PodSpec) RecycleReason {
	switch {
	case len(spec.Containers) != 1:
		return ReplaceContainers
	case len(spec.InitContainers) > 0:
		return ReplaceInit
	case len(spec.EphemeralContainers) > 0:
		return ReplaceEphemeral
	case !restartsAlways(spec):
		return ReplaceNotRestarted
	case spec.HostPID, spec.HostIPC, spec.HostNetwork,
		spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace:
		return ReplaceShared
	case spec.RuntimeClassName != nil:
		// It is unknown what another runtime keeps between the containers of a Pod, and whether it applies sysctls.
		return ReplaceRuntime
	case len(spec.ResourceClaims) > 0:
		// A device is prepared for a Pod, and cleaned after it.
		return ReplaceDevices
	}
	c := &spec.Containers[0]
	if c.RestartPolicy != nil && *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		return ReplaceNotRestarted
	}
	readOnly := map[string]bool{}
	for i := range spec.Volumes {
		if !readOnlySource(&spec.Volumes[i].VolumeSource) {
			return ReplaceVolume
		}
		readOnly[spec.Volumes[i].Name] = true
	}
	switch {
	case privileged(c.SecurityContext):
		return ReplacePrivileged
	case !neverRoot(spec.SecurityContext, c.SecurityContext):
		return ReplaceRoot
	case !sharedMemoryCovered(c, readOnly):
		return ReplaceSharedMemory
	case !ipcClosed(spec.SecurityContext):
		return ReplaceIPC
	}
	return Resettable
}

// readOnlySource reports whether the source of a volume is read-only for the whole Pod. Everything else counts as writable,
// including sources that Kubernetes does not have yet. A read-only mount of a writable source does not help.
func readOnlySource(v *corev1.VolumeSource) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil || v.Image != nil
}

// privileged reports whether the container has privileges over the Pod's namespaces.
func privileged(c *corev1.SecurityContext) bool {
	return c != nil && (isTrue(c.Privileged) ||
		c.Capabilities != nil && len(c.Capabilities.Add) > 0 ||
		c.ProcMount != nil && *c.ProcMount != corev1.DefaultProcMount)
}

// neverRoot reports whether no process in the container can be or become root. Root can write to the Pod's /etc/hostname and
// /etc/resolv.conf, and so choose the next tenant's name server, and to the attributes of its /etc/hosts.
func neverRoot(pod *corev1.PodSecurityContext, c *corev1.SecurityContext) bool {
	if c == nil || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation {
		// A tenant's image may contain setuid root programs.
		return false
	}
	user, nonRoot := c.RunAsUser, c.RunAsNonRoot
	if pod != nil && user == nil {
		user = pod.RunAsUser
	}
	if pod != nil && nonRoot == nil {
		nonRoot = pod.RunAsNonRoot
	}
	return user != nil && *user != 0 || user == nil && isTrue(nonRoot)
}

// sharedMemoryCovered reports whether a read-only volume is mounted over the Pod's shared memory.
func sharedMemoryCovered(c *corev1.Container, readOnly map[string]bool) bool {
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if path.Clean(m.MountPath) == sharedMemoryPath && m.SubPath == "" && m.SubPathExpr == "" {
			return readOnly[m.Name]
		}
	}
	return false
}

// ipcClosed reports whether no IPC object can outlive the process that created it. The Pod's IPC namespace limits these objects,
// and the API shows only its sysctls.
func ipcClosed(pod *corev1.PodSecurityContext) bool {
	if pod == nil {
		return false
	}
	set := map[string]string{}
	for _, s := range pod.Sysctls {
		// The API accepts both spellings of a name. If a name occurs twice, it is unknown which value counts.
		name, value := strings.ReplaceAll(s.Name, "/", "."), strings.TrimSpace(s.Value)
		if _, twice := set[name]; twice {
			value = ""
		}
		set[name] = value
	}
	memory := set["kernel.shmmni"] == "0" || set["kernel.shm_rmid_forced"] == "1"
	semaphores := strings.Fields(set["kernel.sem"])
	return memory && set["kernel.msgmni"] == "0" && set["fs.mqueue.queues_max"] == "0" &&
		len(semaphores) == 4 && semaphores[3] == "0"
}

func isTrue(b *bool) bool { return b != nil && *b }
