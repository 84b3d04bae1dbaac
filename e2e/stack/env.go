// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
)

// Env is an Env with one pool in each of its clusters, and its template, as a user writes them.
type Env struct {
	Name string
	// Namespace of the Env. Default: "default".
	Namespace string
	// Template is the template's name. Default: the Env's.
	Template string
	// Image of the Pods' only container.
	Image string
	// Port of the template's runtime; 0: it has none.
	Port int32
	// Runtime is its name. Default: "http".
	Runtime string
	// AllowedImages are those that a claim may name, one a line.
	AllowedImages string
	// StartupTimeout holds for claims without one. Default: the worker's.
	StartupTimeout string
	Members        []Member
	// Pod changes the template's Pods, in order.
	Pod []func(*corev1.PodSpec)
}

// Member is the pool of an Env in a cluster.
type Member struct {
	Cluster string
	// Name of the pool. Default: that of the Env, "-" and the cluster.
	Name               string
	Replicas, Priority int
	// Team whose quota counts the pool's Pods, if any.
	Team string
	// Resources of the Pods. Default: {requests: {cpu: 10m, memory: 16Mi}}.
	Resources string
}

// Pool is the name of the Env's pool in a cluster, by default.
func (e Env) Pool(cluster string) string { return e.Name + "-" + cluster }

// Manifest is the template and the Env.
func (e Env) Manifest() (string, error) {
	template, err := e.TemplateManifest()
	return template + "---\n" + e.EnvManifest(), err
}

// TemplateManifest is the template alone.
func (e Env) TemplateManifest() (string, error) {
	spec := v1alpha1.SandboxTemplateSpec{Version: "v1.0.0"}
	pod := &spec.Template.Spec
	pod.TerminationGracePeriodSeconds, pod.AutomountServiceAccountToken = new(int64(1)), new(false)
	pod.Containers = []corev1.Container{{Name: "main", Image: e.Image}}
	for _, change := range e.Pod {
		change(pod)
	}
	if e.Port != 0 {
		spec.Runtimes = []v1alpha1.SandboxRuntimeSpec{{Name: cmp.Or(e.Runtime, "http"), Port: &e.Port}}
	}
	text, err := yaml.Marshal(&v1alpha1.SandboxTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: e.template()}, Spec: spec,
	})
	if err != nil {
		return "", fmt.Errorf("writing the template of Env %s: %w", e.Name, err)
	}
	return string(text), nil
}

func (e Env) template() string { return cmp.Or(e.Template, e.Name) }

// EnvManifest is the Env alone. It is text, and not a marshalled object; because that would omit zeros that a user writes.
func (e Env) EnvManifest() string {
	annotations := ""
	if e.AllowedImages != "" {
		annotations = fmt.Sprintf(", annotations: {%s: %q}", v1alpha1.AllowedImagesAnnotationKey, e.AllowedImages)
	}
	var clusters strings.Builder
	for _, m := range e.Members {
		labels := ""
		if m.Team != "" {
			labels = "labels: {scheduling.navix.sh/team: " + m.Team + "}, "
		}
		fmt.Fprintf(&clusters, `
  - clusterID: %s
    members:
    - name: %s
      spec: {replicas: %d}
      config: {priority: %d, %sinlineResources: %s}`, m.Cluster, cmp.Or(m.Name, e.Pool(m.Cluster)), m.Replicas, m.Priority, labels,
			cmp.Or(m.Resources, "{requests: {cpu: 10m, memory: 16Mi}}"))
	}
	overrides := "podCreationImagePolicy: PoolDefaultImage"
	if e.StartupTimeout != "" {
		overrides += ", defaultStartupTimeout: " + e.StartupTimeout
	}
	return fmt.Sprintf(`apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: %s, namespace: %s%s}
spec:
  mode: WarmPool
  templateRef: {name: %s}
  overrides: {%s}
  clusters:%s
`, e.Name, cmp.Or(e.Namespace, metav1.NamespaceDefault), annotations, e.template(), overrides, clusters.String())
}

// Apply is a user's kubectl apply of the manifest in a cluster.
func (e Env) Apply(ctx context.Context, in Kubectl, flags ...string) error {
	manifest, err := e.Manifest()
	if err == nil {
		err = Apply(ctx, in, manifest, flags...)
	}
	if err != nil {
		return fmt.Errorf("applying Env %s: %w", e.Name, err)
	}
	return nil
}

// Kubectl runs kubectl in a cluster.
type Kubectl interface {
	KubectlInput(ctx context.Context, stdin io.Reader, args ...string) (string, error)
}

// Apply is a user's kubectl apply of a manifest in a cluster.
func Apply(ctx context.Context, in Kubectl, manifest string, flags ...string) error {
	if out, err := in.KubectlInput(ctx, strings.NewReader(manifest), append([]string{"apply", "-f", "-"}, flags...)...); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// ClosedPod makes Pods in which nothing outlives a swap of the image.
func ClosedPod(pod *corev1.PodSpec) {
	pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(65532)), Sysctls: []corev1.Sysctl{
		{Name: "kernel.shm_rmid_forced", Value: "1"}, {Name: "kernel.msgmni", Value: "0"},
		{Name: "kernel.sem", Value: "250 32000 32 0"}, {Name: "fs.mqueue.queues_max", Value: "0"},
	}}
	main := &pod.Containers[0]
	main.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)}
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "no-shm", MountPath: "/dev/shm"})
	pod.Volumes = append(pod.Volumes, corev1.Volume{
		Name: "no-shm", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}},
	})
}

// ScratchPod gives Pods a volume that a tenant can write to.
func ScratchPod(volume corev1.EmptyDirVolumeSource) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) {
		main := &pod.Containers[0]
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "scratch", MountPath: "/scratch"})
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &volume}})
	}
}
