// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// I13: a Pod that could carry data of one tenant to the next is replaced.
func TestI13Residue(t *testing.T) {
	yes, no := true, false
	always, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever
	volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
		}
	}
	spec := func(f func(*corev1.PodSpec)) func(*corev1.Pod) { return func(p *corev1.Pod) { f(&p.Spec) } }
	main := func(f func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { f(&p.Spec.Containers[0]) }
	}
	sysctl := func(name, value string) func(*corev1.Pod) {
		return spec(func(s *corev1.PodSpec) {
			s.SecurityContext.Sysctls = slices.DeleteFunc(s.SecurityContext.Sysctls, func(s corev1.Sysctl) bool { return s.Name == name })
			if value != "" {
				s.SecurityContext.Sysctls = append(s.SecurityContext.Sysctls, corev1.Sysctl{Name: name, Value: value})
			}
		})
	}
	first := func(name, value string) func(*corev1.Pod) {
		return spec(func(s *corev1.PodSpec) {
			s.SecurityContext.Sysctls = append([]corev1.Sysctl{{Name: name, Value: value}}, s.SecurityContext.Sysctls...)
		})
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   RecycleReason
	}{
		"nothing kept":               {func(*corev1.Pod) {}, Resettable},
		"policy Auto":                {annotated(v1alpha1.RecyclePolicyAnnotationKey, "Auto"), Resettable},
		"policy Replace":             {annotated(v1alpha1.RecyclePolicyAnnotationKey, "Replace"), ReplaceByPolicy},
		"policy Reuse is not weaker": {annotated(v1alpha1.RecyclePolicyAnnotationKey, "Reuse"), ReplaceByPolicy},
		"policy that is not known":   {annotated(v1alpha1.RecyclePolicyAnnotationKey, "auto"), ReplaceByPolicy},
		"config map":                 {volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}), Resettable},
		"secret":                     {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}), Resettable},
		"downward API":               {volume(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}), Resettable},
		"service account token":      {volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}), Resettable},
		"image volume":               {volume(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}), Resettable},
		"emptyDir":                   {volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), ReplaceVolume},
		"host path":                  {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}), ReplaceVolume},
		"claim": {volume(corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ReadOnly: true},
		}), ReplaceVolume},
		"ephemeral volume":          {volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), ReplaceVolume},
		"csi":                       {volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}), ReplaceVolume},
		"nfs":                       {volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}), ReplaceVolume},
		"source of a later version": {volume(corev1.VolumeSource{}), ReplaceVolume},
		"second container": {spec(func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{Name: "two"}) }),
			ReplaceContainers},
		"sidecar": {spec(func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "side",
				RestartPolicy: &always}}
		}), ReplaceInit},
		"init container": {spec(func(s *corev1.PodSpec) { s.InitContainers = []corev1.Container{{Name: "init"}} }), ReplaceInit},
		"debug container": {spec(func(s *corev1.PodSpec) { s.EphemeralContainers = []corev1.EphemeralContainer{{}} }),
			ReplaceEphemeral},
		"shared processes":     {spec(func(s *corev1.PodSpec) { s.ShareProcessNamespace = &yes }), ReplaceShared},
		"processes not shared": {spec(func(s *corev1.PodSpec) { s.ShareProcessNamespace = &no }), Resettable},
		"host processes":       {spec(func(s *corev1.PodSpec) { s.HostPID = true }), ReplaceShared},
		"host IPC":             {spec(func(s *corev1.PodSpec) { s.HostIPC = true }), ReplaceShared},
		"host network":         {spec(func(s *corev1.PodSpec) { s.HostNetwork = true }), ReplaceShared},
		"privileged":           {main(func(c *corev1.Container) { c.SecurityContext.Privileged = &yes }), ReplacePrivileged},
		"added capability": {main(func(c *corev1.Container) {
			c.SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}
		}), ReplacePrivileged},
		"dropped capability": {main(func(c *corev1.Container) {
			c.SecurityContext.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
		}), Resettable},
		"unmasked proc": {main(func(c *corev1.Container) { c.SecurityContext.ProcMount = new(corev1.UnmaskedProcMount) }),
			ReplacePrivileged},
		"another runtime":       {spec(func(s *corev1.PodSpec) { s.RuntimeClassName = new("gvisor") }), ReplaceRuntime},
		"device":                {spec(func(s *corev1.PodSpec) { s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }), ReplaceDevices},
		"root by the image":     {spec(func(s *corev1.PodSpec) { s.SecurityContext.RunAsUser = nil }), ReplaceRoot},
		"root":                  {spec(func(s *corev1.PodSpec) { s.SecurityContext.RunAsUser = new(int64(0)) }), ReplaceRoot},
		"root in the container": {main(func(c *corev1.Container) { c.SecurityContext.RunAsUser = new(int64(0)) }), ReplaceRoot},
		"user of the container": {spec(func(s *corev1.PodSpec) {
			s.SecurityContext.RunAsUser, s.Containers[0].SecurityContext.RunAsUser = nil, new(int64(7))
		}), Resettable},
		"not root by the image": {spec(func(s *corev1.PodSpec) { s.SecurityContext.RunAsUser, s.SecurityContext.RunAsNonRoot = nil, &yes }),
			Resettable},
		"not root, but not for it": {spec(func(s *corev1.PodSpec) {
			s.SecurityContext.RunAsUser, s.SecurityContext.RunAsNonRoot, s.Containers[0].SecurityContext.RunAsNonRoot = nil, &yes, &no
		}), ReplaceRoot},
		"may become root":            {main(func(c *corev1.Container) { c.SecurityContext.AllowPrivilegeEscalation = &yes }), ReplaceRoot},
		"may become root by default": {main(func(c *corev1.Container) { c.SecurityContext = nil }), ReplaceRoot},
		"no security context": {spec(func(s *corev1.PodSpec) {
			s.SecurityContext = nil
			s.Containers[0].SecurityContext.RunAsUser = new(int64(7))
		}), ReplaceIPC},
		"shared memory":               {main(func(c *corev1.Container) { c.VolumeMounts = nil }), ReplaceSharedMemory},
		"shared memory by its parent": {main(func(c *corev1.Container) { c.VolumeMounts[0].MountPath = "/dev" }), ReplaceSharedMemory},
		"part over shared memory":     {main(func(c *corev1.Container) { c.VolumeMounts[0].SubPath = "file" }), ReplaceSharedMemory},
		"shared memory, other words":  {main(func(c *corev1.Container) { c.VolumeMounts[0].MountPath = "/dev//shm/" }), Resettable},
		"volume that is not there":    {main(func(c *corev1.Container) { c.VolumeMounts[0].Name = "other" }), ReplaceSharedMemory},
		"segments stay":               {sysctl("kernel.shm_rmid_forced", ""), ReplaceIPC},
		"segments stay on demand":     {sysctl("kernel.shm_rmid_forced", "0"), ReplaceIPC},
		"segments forbidden": {func(p *corev1.Pod) { sysctl("kernel.shm_rmid_forced", "")(p); sysctl("kernel.shmmni", "0")(p) },
			Resettable},
		"message queues":              {sysctl("kernel.msgmni", "32000"), ReplaceIPC},
		"message queues by default":   {sysctl("kernel.msgmni", ""), ReplaceIPC},
		"semaphores":                  {sysctl("kernel.sem", "250 32000 32 128"), ReplaceIPC},
		"semaphores by default":       {sysctl("kernel.sem", "250 32000 32"), ReplaceIPC},
		"POSIX queues":                {sysctl("fs.mqueue.queues_max", ""), ReplaceIPC},
		"other spelling":              {func(p *corev1.Pod) { sysctl("kernel.msgmni", "")(p); sysctl("kernel/msgmni", "0")(p) }, Resettable},
		"two spellings":               {sysctl("kernel/msgmni", "32000"), ReplaceIPC},
		"two spellings, reversed":     {first("kernel/msgmni", "32000"), ReplaceIPC},
		"twice":                       {first("kernel.msgmni", "32000"), ReplaceIPC},
		"twice the same":              {first("kernel.msgmni", "0"), ReplaceIPC},
		"never restarted":             {spec(func(s *corev1.PodSpec) { s.RestartPolicy = corev1.RestartPolicyNever }), ReplaceNotRestarted},
		"container never restarted":   {spec(func(s *corev1.PodSpec) { s.Containers[0].RestartPolicy = &never }), ReplaceNotRestarted},
		"terminating":                 {func(p *corev1.Pod) { p.DeletionTimestamp = metaTime(noon) }, ReplaceGone},
		"failed":                      {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, ReplaceGone},
		"idle image":                  {runs(idleImage, "containerd://c2"), ReplaceSameImage},
		"idle image by another name":  {runs("registry.test/idle:1@", "containerd://c2"), ReplaceSameImage},
		"container never seen":        {runs(tenantImage, ""), ReplaceNoContainerID},
		"swap not seen to have begun": {annotated(v1alpha1.SwapFromContainerIDAnnotationKey, "containerd://c2"), ReplaceNoContainerID},
	} {
		pod := idlePod(holds(Running), runs(tenantImage, "containerd://c2"), tc.change)
		got := Recyclable(pod, poolSpec())
		if got.Reason != tc.want || got.Reset != (tc.want == Resettable) {
			t.Errorf("%s: %+v, want %s", name, got, tc.want)
		}
	}
}
