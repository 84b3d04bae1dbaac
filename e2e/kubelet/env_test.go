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
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const namespace = "default"

// env is one test's Env, with a single pool in one cluster.
type env struct {
	name, cluster, image string
	replicas             int
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
	return newEnvFrom(ctx, t, cluster, replicas, stack.Env{
		Name: name, Image: idleImage, AllowedImages: "registry.example/*", Pod: change,
	}, resources)
}

// newEnvFrom is newEnv with what else the manifest has.
func newEnvFrom(ctx context.Context, t *testing.T, cluster string, replicas int, manifest stack.Env, resources string) *env {
	t.Helper()
	e := &env{name: manifest.Name, cluster: cluster, image: manifest.Image, replicas: replicas}
	manifest.Namespace = namespace
	manifest.Members = []stack.Member{{Cluster: cluster, Name: e.name, Replicas: replicas, Resources: resources}}
	t.Cleanup(func() { e.remove(t) })
	must.Succeed(t, manifest.Apply(ctx, nodes[cluster]))
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
		if err := hub.Release(ctx, id); id != "" && err != nil {
			t.Error(err)
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
var closed = stack.ClosedPod

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
	return stack.ScratchPod(corev1.EmptyDirVolumeSource{SizeLimit: quantity(limit)})
}

// waitWarm waits until the hub sees the Env's Pods idle and ready, and returns them.
func (e *env) waitWarm(ctx context.Context, t *testing.T) []corev1.Pod {
	t.Helper()
	wait.For(t, patience, "the Pods of "+e.name+" to be warm", func(ctx context.Context) error {
		ready, err := hub.ReadyIdle(ctx, namespace, e.name)
		if err != nil {
			return err
		}
		pods := e.pods(ctx, t)
		for i := range pods {
			if !e.warm(&pods[i]) {
				return errors.New(show(pods))
			}
		}
		return wait.If(ready[e.cluster] == e.replicas && len(pods) == e.replicas, fmt.Sprintf("%v ready at the hub; %s", ready, show(pods)))
	})
	return e.pods(ctx, t)
}

func (e *env) warm(pod *corev1.Pod) bool {
	statuses := pod.Status.ContainerStatuses
	return pod.DeletionTimestamp == nil && pod.Labels[v1alpha1.SandboxPhaseLabelKey] == v1alpha1.SandboxPhaseIdle &&
		len(statuses) == 1 && statuses[0].Ready && strings.HasSuffix(statuses[0].Image, e.image)
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
	return stack.EnvCaller{Namespace: namespace, Env: e.name}.Claim(ctx, hub, &sandboxv1.CreateSandboxRequest{Image: image})
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
	must.Succeed(t, hub.Release(ctx, sandbox.GetId()))
}

// waitEnded waits for the record of a sandbox that ended by itself.
func waitEnded(ctx context.Context, t *testing.T, id string) *sandboxv1.Sandbox {
	t.Helper()
	var record *sandboxv1.Sandbox
	wait.For(t, patience, "the record of "+id, func(ctx context.Context) (err error) {
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
