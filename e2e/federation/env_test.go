// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/history"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

const (
	namespace = "default"
	poolImage = "registry.example/python:3.13"
	swapImage = "registry.example/python:3.14"
)

// member is an Env's pool in one cluster.
type member = stack.Member

// env is one test's Env, applied in every cluster from one manifest.
type env struct {
	stack.Env
	caller stack.EnvCaller
}

// equally gives every cluster the same number of Pods.
func equally(replicas int) []member {
	members := make([]member, 0, len(clusters))
	for _, cluster := range clusters {
		members = append(members, member{Cluster: cluster, Replicas: replicas})
	}
	return members
}

// newEnv applies an Env, waits until its Pods are warm, and deletes it at the end of the test.
func newEnv(ctx context.Context, t *testing.T, name string, members ...member) *env {
	t.Helper()
	return newEnvOf(ctx, t, name, members)
}

// newEnvOf is newEnv with other Pods.
func newEnvOf(ctx context.Context, t *testing.T, name string, members []member, pod ...func(*corev1.PodSpec)) *env {
	t.Helper()
	e := declareEnv(t, name, members, pod...)
	e.apply(ctx, t, clusters...)
	e.waitReady(ctx, t, e.replicas())
	return e
}

// declareEnv returns an Env that is not applied yet. It is deleted at the end of the test.
func declareEnv(t *testing.T, name string, members []member, pod ...func(*corev1.PodSpec)) *env {
	t.Helper()
	e := &env{
		Env: stack.Env{
			Name: name, Namespace: namespace, Image: poolImage, Port: 8000, AllowedImages: "registry.example/python\nregistry.invalid/*",
			Members: members, Pod: pod,
		},
		caller: stack.EnvCaller{Namespace: namespace, Env: name, Holdings: history.NewHoldings()},
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testLimit)
		defer cancel()
		if err := e.remove(ctx); err != nil {
			t.Errorf("cleaning up after the test: %v", err)
		}
	})
	return e
}

func (e *env) replicas() map[string]int {
	want := map[string]int{}
	for _, m := range e.Members {
		want[m.Cluster] = m.Replicas
	}
	return want
}

// apply is a client-side kubectl apply of the same manifest in each of the clusters.
func (e *env) apply(ctx context.Context, t *testing.T, in ...string) {
	t.Helper()
	var group errgroup.Group
	for _, cluster := range in {
		group.Go(func() error {
			if err := e.Apply(ctx, atoll.Cluster(cluster)); err != nil {
				return fmt.Errorf("in %s: %w", cluster, err)
			}
			return nil
		})
	}
	must.Succeed(t, group.Wait())
}

// waitReady waits until the hub sees that many claimable Pods in the clusters.
func (e *env) waitReady(ctx context.Context, t *testing.T, want map[string]int) {
	t.Helper()
	wait.For(t, patience, fmt.Sprintf("claimable Pods of %s as the hub sees them, %v", e.Name, want), func(ctx context.Context) error {
		ready, err := hub.ReadyIdle(ctx, namespace, e.Name)
		return errors.Join(err, wait.If(maps.Equal(ready, want), ready))
	})
}

func (e *env) merged(ctx context.Context) (*sandboxv1.Env, error) {
	return hub.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: namespace, Name: e.Name})
}

// claim makes one claim and records it in the holdings.
func (e *env) claim(ctx context.Context, c *stack.Client, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	return e.caller.Claim(ctx, c, r)
}

func (e *env) mustClaim(ctx context.Context, t *testing.T, c *stack.Client, r *sandboxv1.CreateSandboxRequest) *sandboxv1.Sandbox {
	t.Helper()
	sandbox, err := e.claim(ctx, c, r)
	must.Succeed(t, err)
	return sandbox
}

func (e *env) mustRelease(ctx context.Context, t *testing.T, c *stack.Client, sandbox *sandboxv1.Sandbox) {
	t.Helper()
	must.Succeed(t, e.caller.Release(ctx, c, sandbox))
}

// wantReason fails the test unless err is a problem of that reason.
func wantReason(t *testing.T, err error, want problem.Reason) *problem.Error {
	t.Helper()
	got := problem.FromError(err)
	if got == nil || got.Reason != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	return got
}

// pods lists the Env's Pods in a cluster, from the API server.
func (e *env) pods(ctx context.Context, cluster string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := kube[cluster].List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelEnv: e.Name})
	if err != nil {
		return nil, fmt.Errorf("listing Pods of %s in %s: %w", e.Name, cluster, err)
	}
	return pods.Items, nil
}

// get reads the Env from a cluster's API server.
func (e *env) get(ctx context.Context, cluster string) (*v1alpha1.SandboxEnv, error) {
	var out v1alpha1.SandboxEnv
	if err := kube[cluster].Get(ctx, client.ObjectKey{Namespace: namespace, Name: e.Name}, &out); err != nil {
		return nil, fmt.Errorf("reading Env %s in %s: %w", e.Name, cluster, err)
	}
	return &out, nil
}

// segment is the Env's segment, in one cluster, of another or the same one: "idle=… running=… desired=…", or "none".
func (e *env) segment(ctx context.Context, in, of string) (string, error) {
	got, err := e.get(ctx, in)
	if err != nil {
		return "", err
	}
	for _, s := range got.Status.Clusters {
		if s.ClusterID == of && len(s.ObservedMembers) == 1 {
			m := s.ObservedMembers[0]
			return fmt.Sprintf("idle=%d running=%d desired=%d", m.IdleCount, m.RunningCount, m.DesiredReplicas), nil
		}
	}
	return "none", nil
}

// waitSegment waits until one cluster has that segment of another.
func (e *env) waitSegment(ctx context.Context, t *testing.T, in, of, want string) {
	t.Helper()
	wait.For(t, patience, fmt.Sprintf("%s to show %q of %s", in, want, of), func(ctx context.Context) error {
		got, err := e.segment(ctx, in, of)
		return errors.Join(err, wait.If(got == want, got))
	})
}

// remove heals the federation, releases all sandboxes, deletes the Env everywhere and waits until nothing of it is left.
func (e *env) remove(ctx context.Context) error {
	if err := heal(ctx); err != nil {
		return err
	}
	listed, err := hub.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Namespace: namespace, Env: e.Name, PageSize: 1000})
	if err != nil {
		return fmt.Errorf("listing sandboxes: %w", err)
	}
	for _, sandbox := range listed.GetSandboxes() {
		if err := hub.Release(ctx, sandbox.GetId()); err != nil {
			return err
		}
	}
	for _, cluster := range clusters {
		objects := []client.Object{
			&v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: e.Name}},
			&v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: e.Name}},
		}
		for _, object := range objects {
			if err := client.IgnoreNotFound(kube[cluster].Delete(ctx, object)); err != nil {
				return fmt.Errorf("deleting %T %s in %s: %w", object, e.Name, cluster, err)
			}
		}
	}
	var errs []error
	for _, cluster := range clusters {
		errs = append(errs, wait.Until(ctx, patience, "the Pods of "+e.Name+" in "+cluster+" to go", func(ctx context.Context) error {
			pods, err := e.pods(ctx, cluster)
			return errors.Join(err, wait.If(len(pods) == 0, summary(pods)))
		}))
	}
	return errors.Join(append(errs, wait.Until(ctx, patience, "the hub to forget "+e.Name, func(ctx context.Context) error {
		merged, err := e.merged(ctx)
		if err == nil {
			return fmt.Errorf("it has %v", merged)
		}
		return wait.If(problem.FromError(err).Reason == problem.NotFound, err.Error())
	}))...)
}

// summary is a line about each Pod, for failures.
func summary(pods []corev1.Pod) string {
	lines := make([]string, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		lines = append(lines, fmt.Sprintf("%s uid=%s phase=%s sandbox=%q deleting=%t finalizers=%v", p.Name, p.UID,
			p.Labels[v1alpha1.SandboxPhaseLabelKey], p.Labels[v1alpha1.SandboxIDLabelKey], p.DeletionTimestamp != nil, p.Finalizers))
	}
	return fmt.Sprintf("%d Pods\n%s", len(pods), strings.Join(lines, "\n"))
}
