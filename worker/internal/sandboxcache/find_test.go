// SPDX-License-Identifier: Apache-2.0

package sandboxcache_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const clusterID = "east"

var east = planetest.New(clusterID, plane.Options{}, nil)

func TestMain(m *testing.M) { east.Main(m) }

// podOf makes a Pod of a pool.
func podOf(name, pool, phase string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{
			v1alpha1.ManagedByLabelKey:   v1alpha1.ManagedBySandboxAPIServer,
			v1alpha1.SandboxPoolLabelKey: pool, v1alpha1.SandboxPhaseLabelKey: phase,
		}},
		Spec: corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "main", Image: "test.local/a:1"}}},
	}
}

// TestFind asks a real API server, and a cache of it.
func TestFind(t *testing.T) {
	ctx := t.Context()
	scheme := planetest.Scheme(t)
	cfg := east.Up(t).Config()
	api, err := client.New(cfg, client.Options{Scheme: scheme})
	must.Succeed(t, err)
	other := podOf("other", "p", "idle") // not ours
	other.Labels[v1alpha1.ManagedByLabelKey] = "another"
	for _, pod := range []*corev1.Pod{podOf("a", "p", "running"), podOf("b", "p", "stopping"), podOf("c", "q", "starting"),
		podOf("d", "q", "idle"), other} {
		must.Succeed(t, api.Create(ctx, pod))
	}
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxEnv", Name: "demo", UID: "uid-of-demo"},
	}}}
	pool.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "test.local/a:1"}}
	must.Succeed(t, api.Create(ctx, pool))
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
	env.Spec.TemplateRef.Name, env.Spec.Mode = "python", v1alpha1.SandboxEnvModeWarmPool
	must.Succeed(t, api.Create(ctx, env))

	informers, err := cache.New(cfg, cache.Options{Scheme: scheme, ByObject: sandboxcache.ByObject()})
	must.Succeed(t, err)
	must.Succeed(t, sandboxcache.AddIndexes(ctx, informers))
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- informers.Start(running) }()
	defer func() {
		stop()
		must.Succeed(t, <-ended)
	}()
	if !informers.WaitForCacheSync(ctx) {
		t.Fatal("the cache does not fill")
	}

	found := func(question string, pods []*corev1.Pod, err error, want ...string) {
		t.Helper()
		names := []string{}
		for _, pod := range pods {
			names = append(names, pod.Name)
		}
		slices.Sort(names)
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("%s: %v, %v, want %v", question, names, err, want)
		}
	}
	pods, err := sandboxcache.PodsOf(ctx, informers, types.NamespacedName{Namespace: "default", Name: "p"})
	found("in pool", pods, err, "a", "b")
	pods, err = sandboxcache.PodsOf(ctx, informers, types.NamespacedName{Namespace: "elsewhere", Name: "p"})
	found("in pool of another namespace", pods, err)
	pods = nil
	for pod, err := range sandboxcache.LivePods(ctx, api, sandbox.Idle, sandbox.Stopping) {
		must.Succeed(t, err)
		pods = append(pods, pod)
	}
	found("in phase", pods, nil, "b", "d")
	pools, err := sandboxcache.PoolsOf(ctx, informers,
		&v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", UID: "uid-of-demo"}})
	if err != nil || len(pools) != 1 {
		t.Errorf("pools of the Env: %v, %v", pools, err)
	}
	envs, err := sandboxcache.EnvsOf(ctx, informers, "python")
	if err != nil || len(envs) != 1 {
		t.Errorf("Envs of the template: %v, %v", envs, err)
	}
}

// TestIndexersAreTheIndexes: informers that no manager made are searched by the same fields.
func TestIndexersAreTheIndexes(t *testing.T) {
	pod := podOf("a", "p", "running")
	for field, index := range sandboxcache.Indexers(&corev1.Pod{}) {
		values, err := index(pod)
		if err != nil || len(values) != 1 {
			t.Errorf("%s: %v, %v", field, values, err)
		}
	}
	if n := len(sandboxcache.Indexers(&corev1.Pod{})); n != 1 {
		t.Errorf("%d indexes of Pods, want 1", n)
	}
	if n := len(sandboxcache.Indexers(&corev1.Node{})); n != 0 {
		t.Errorf("%d indexes of Nodes, want none", n)
	}
}
