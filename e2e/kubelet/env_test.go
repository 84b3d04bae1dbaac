// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

const namespace = "default"

// env is one test's Env, with a single pool in one cluster.
type env struct {
	name, cluster string
	replicas      int
}

// newEnv applies an Env whose Pods are as the changes make them, waits until they are warm, and takes it away again at the
// end of the test.
func newEnv(ctx context.Context, t *testing.T, cluster, name string, replicas int, change ...func(*corev1.PodSpec)) *env {
	t.Helper()
	return newEnvOf(ctx, t, cluster, name, replicas, "{requests: {cpu: 1m, memory: 8Mi}, limits: {memory: 64Mi}}", change...)
}

// newEnvOf is newEnv for Pods with these resources.
func newEnvOf(
	ctx context.Context, t *testing.T, cluster, name string, replicas int, resources string, change ...func(*corev1.PodSpec),
) *env {
	t.Helper()
	e := &env{name: name, cluster: cluster, replicas: replicas}
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{Name: "main", Image: idleImage}},
	}
	for _, f := range change {
		f(&spec)
	}
	template, err := yaml.Marshal(&v1alpha1.SandboxTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.SandboxTemplateSpec{
			Version:                 "v1.0.0",
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{Template: corev1.PodTemplateSpec{Spec: spec}},
		},
	})
	must.Succeed(t, err)
	manifest := fmt.Sprintf(`%s
---
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: %[2]s, namespace: %[3]s, annotations: {agentbox.navix.sh/allowed-images: registry.example/*}}
spec:
  mode: WarmPool
  templateRef: {name: %[2]s}
  overrides: {podCreationImagePolicy: PoolDefaultImage}
  clusters:
    - clusterID: %[4]s
      members:
        - name: %[2]s
          spec: {replicas: %[5]d}
          config: {inlineResources: %[6]s}
`, template, name, namespace, cluster, replicas, resources)
	t.Cleanup(func() { e.remove(t) })
	if out, err := nodes[cluster].KubectlInput(ctx, strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		t.Fatalf("applying Env %s: %v\n%s", name, err, out)
	}
	e.waitWarm(ctx, t)
	return e
}

// remove deletes Env and template and waits until no Pod is left. Callers that still hold a sandbox of it lose it.
func (e *env) remove(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range e.pods(ctx, t) {
		id := e.pods(ctx, t)[i].Labels[v1alpha1.SandboxIDLabelKey]
		if _, err := hub.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: id}); id != "" && err != nil {
			t.Errorf("releasing %s: %v", id, err)
		}
	}
	if out, err := nodes[e.cluster].Kubectl(ctx, "-n", namespace, "delete", "sandboxenv", e.name, "--ignore-not-found"); err != nil {
		t.Errorf("deleting Env %s: %v\n%s", e.name, err, out)
	}
	if out, err := nodes[e.cluster].Kubectl(ctx, "delete", "sandboxtemplate", e.name, "--ignore-not-found"); err != nil {
		t.Errorf("deleting template %s: %v\n%s", e.name, err, out)
	}
	wait.For(t, patience, "the Pods of "+e.name+" to be gone", func(ctx context.Context) error {
		pods := e.pods(ctx, t)
		return wait.If(len(pods) == 0, show(pods))
	})
}

// closed makes Pods in which nothing outlives a swap of the image.
func closed(spec *corev1.PodSpec) {
	spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(65532)), Sysctls: []corev1.Sysctl{
		{Name: "kernel.shm_rmid_forced", Value: "1"}, {Name: "kernel.msgmni", Value: "0"},
		{Name: "kernel.sem", Value: "250 32000 32 0"}, {Name: "fs.mqueue.queues_max", Value: "0"},
	}}
	spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "no-shm", MountPath: "/dev/shm"}}
	spec.Volumes = []corev1.Volume{{Name: "no-shm", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}}}
}

// root makes Pods whose tenants are root.
func root(spec *corev1.PodSpec) {
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	spec.SecurityContext.RunAsUser = new(int64(0))
}

// lingers makes Pods whose container takes so many seconds to end.
func lingers(seconds int64) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.TerminationGracePeriodSeconds = new(seconds + 4)
		spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}}
	}
}

// scratch gives Pods a volume of this size.
func scratch(limit string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "scratch", MountPath: "/scratch"})
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: quantity(limit)},
		}})
	}
}

// waitWarm waits until the hub sees the Env's Pods idle and ready, and returns them.
func (e *env) waitWarm(ctx context.Context, t *testing.T) []corev1.Pod {
	t.Helper()
	wait.For(t, patience, "the Pods of "+e.name+" to be warm", func(ctx context.Context) error {
		merged, err := hub.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: namespace, Name: e.name})
		if err != nil {
			return err
		}
		ready := 0
		for _, c := range merged.GetClusters() {
			for _, m := range c.GetMembers() {
				ready += int(m.GetReadyIdle())
			}
		}
		pods := e.pods(ctx, t)
		for i := range pods {
			if !warm(&pods[i]) {
				return errors.New(show(pods))
			}
		}
		return wait.If(ready == e.replicas && len(pods) == e.replicas, fmt.Sprintf("%d ready at the hub; %s", ready, show(pods)))
	})
	return e.pods(ctx, t)
}

func warm(pod *corev1.Pod) bool {
	statuses := pod.Status.ContainerStatuses
	return pod.DeletionTimestamp == nil && pod.Labels[v1alpha1.SandboxPhaseLabelKey] == v1alpha1.SandboxPhaseIdle &&
		len(statuses) == 1 && statuses[0].Ready && statuses[0].Image == idleImage
}

func (e *env) pods(ctx context.Context, t *testing.T) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	err := kube[e.cluster].List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelEnv: e.name})
	if err != nil {
		t.Logf("listing the Pods of %s: %v", e.name, err)
	}
	return pods.Items
}

// claim asks the hub for a sandbox.
func (e *env) claim(ctx context.Context, image string) (*sandboxv1.Sandbox, error) {
	return hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		Namespace: namespace, Env: e.name, Image: image, FirstActivityTimeout: durationpb.New(0), // what is kept is not used
	})
}

func (e *env) mustClaim(ctx context.Context, t *testing.T, image string) *sandboxv1.Sandbox {
	t.Helper()
	sandbox, err := e.claim(ctx, image)
	if err != nil {
		t.Fatalf("claiming from %s: %v; %s", e.name, err, show(e.pods(ctx, t)))
	}
	return sandbox
}

func release(ctx context.Context, t *testing.T, sandbox *sandboxv1.Sandbox) {
	t.Helper()
	if _, err := hub.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: sandbox.GetId()}); err != nil {
		t.Fatalf("releasing %s: %v", sandbox.GetId(), err)
	}
}

// waitEnded waits for the record of a sandbox that ended by itself.
func waitEnded(ctx context.Context, t *testing.T, id string) *sandboxv1.Sandbox {
	t.Helper()
	var record *sandboxv1.Sandbox
	wait.For(t, patience, "the record of "+id, func(ctx context.Context) error {
		var err error
		record, err = hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: id})
		if err != nil && status.Code(err) != codes.Unavailable {
			return err
		}
		return wait.If(record.GetPhase() == sandboxv1.Phase_ENDED, record)
	})
	return record
}

// show tells about Pods what a failing test needs.
func show(pods []corev1.Pod) string {
	var out []string
	for i := range pods {
		p := &pods[i]
		line := fmt.Sprintf("%s %s %s", p.Name, p.Labels[v1alpha1.SandboxPhaseLabelKey], p.Status.Phase)
		if p.DeletionTimestamp != nil {
			line += " deleted"
		}
		for _, c := range p.Status.ContainerStatuses {
			line += fmt.Sprintf(" %s ready=%t restarts=%d", c.Image, c.Ready, c.RestartCount)
			if w := c.State.Waiting; w != nil {
				line += " " + w.Reason + ": " + w.Message
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}
