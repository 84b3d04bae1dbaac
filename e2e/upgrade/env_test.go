// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// replicas of the Env in each cluster.
const replicas = 8

// applyEnv applies the Env in all clusters and waits until the hub sees it warm.
func applyEnv(ctx context.Context, t *testing.T) {
	t.Helper()
	e := stack.Env{
		Name: envName, Image: poolImage, Port: 8000, AllowedImages: "registry.example/python", Pod: []func(*corev1.PodSpec){stack.ClosedPod},
	}
	want := map[string]int{}
	for _, cluster := range clusters {
		e.Members = append(e.Members, stack.Member{Cluster: cluster, Replicas: replicas})
		want[cluster] = replicas
	}
	for _, cluster := range clusters {
		must.Succeed(t, e.Apply(ctx, atoll.Cluster(cluster)))
	}
	wait.For(t, patience, "the Env to be warm", func(ctx context.Context) error {
		ready, err := hub.ReadyIdle(ctx, namespace, envName)
		return errors.Join(err, wait.If(maps.Equal(ready, want), ready))
	})
}

// heardOf is that the hub has all clusters, and of the step's cluster a worker of the version.
func heardOf(s step) func(context.Context) error {
	return func(ctx context.Context) error {
		listed, err := hub.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
		fresh := 0
		for _, c := range listed.GetClusters() {
			if c.GetState() == sandboxv1.ClusterState_FRESH && (c.GetId() != s.cluster || c.GetVersion() == s.to.Name) {
				fresh++
			}
		}
		return errors.Join(err, wait.If(fresh == len(clusters), listed))
	}
}

// kept is a sandbox that its caller keeps throughout.
type kept struct {
	request *sandboxv1.CreateSandboxRequest
	sandbox *sandboxv1.Sandbox
}

// keep claims two sandboxes in each cluster, one of them with a key.
func keep(ctx context.Context, t *testing.T, l *load) []*kept {
	t.Helper()
	var out []*kept
	for _, cluster := range clusters {
		for _, key := range []string{"", "keep-" + cluster} {
			k := &kept{request: &sandboxv1.CreateSandboxRequest{ClaimKey: key, Clusters: []string{cluster}, RequireClusters: true}}
			var err error
			k.sandbox, err = l.claim(ctx, k.request)
			must.Succeed(t, err)
			out = append(out, k)
		}
	}
	return out
}

// mustBeThere holds the hub, the cluster, and the claim key if there is one, to the answer.
func (k *kept) mustBeThere(ctx context.Context, t *testing.T, l *load) {
	t.Helper()
	there := l.stillThere(ctx, k.sandbox)
	live, err := liveSandboxes(ctx)
	if err := errors.Join(there, err); err != nil {
		t.Error(err)
	}
	if live[k.sandbox.GetPodUid()] != k.sandbox.GetId() {
		t.Errorf("lost: pod %s of %s was answered as %s and carries %q", k.sandbox.GetPodUid(), k.sandbox.GetClusterId(), k.sandbox.GetId(),
			live[k.sandbox.GetPodUid()])
	}
	if k.request.GetClaimKey() == "" {
		return
	}
	// The holdings know what was answered to the key before.
	if _, err := l.claim(ctx, k.request); err != nil {
		t.Error(err)
	}
}

// liveSandboxes are those on Pods, by the Pod's uid, from the API servers.
func liveSandboxes(ctx context.Context) (map[string]string, error) {
	live := map[string]string{}
	for id, c := range kube {
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelEnv: envName})
		if err != nil {
			return nil, fmt.Errorf("listing Pods in %s: %w", id, err)
		}
		for i := range pods.Items {
			labels := pods.Items[i].Labels
			switch labels[v1alpha1.SandboxPhaseLabelKey] {
			case v1alpha1.SandboxPhaseRunning, v1alpha1.SandboxPhaseStarting:
				live[string(pods.Items[i].UID)] = labels[v1alpha1.SandboxIDLabelKey]
			}
		}
	}
	return live, nil
}
