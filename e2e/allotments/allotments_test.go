// SPDX-License-Identifier: Apache-2.0

package allotments_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	patience = 120 * time.Second
	limit    = 6
	name     = "python"
)

// templateOf is a template, before other objects.
func templateOf(name string) string {
	return fmt.Sprintf(`apiVersion: agents.navix.sh/v1alpha1
kind: SandboxTemplate
metadata: {name: %s}
spec:
  version: v1.0.0
  template:
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: registry.example/python:3}]
---
`, name)
}

// envOf is an Env with a pool in each cluster, in a group with these limits; perMember is more of each pool's config.
func envOf(name, limits, perMember string) string {
	return fmt.Sprintf(`apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: %[1]s, namespace: default}
spec:
  mode: WarmPool
  templateRef: {name: python}
  autoscaling:
    groups:
    - name: all
      enabled: true
      %[2]s
      scaleUpPolicy: {cooldownSeconds: 0, idleThresholdSeconds: 0}
      scaleDownPolicy: {idleTimeoutSeconds: 2, stabilizationSeconds: 0, protectionWindowSeconds: 1}
  clusters:
  - clusterID: east
    members:
    - {name: %[1]s-east, config: {scalingGroup: all, %[3]sinlineResources: {requests: {cpu: 10m}}}}
  - clusterID: north
    members:
    - {name: %[1]s-north, config: {scalingGroup: all, %[3]sinlineResources: {requests: {cpu: 10m}}}}
`, name, limits, perMember)
}

// manifest is the Env that is claimed from, and its template.
func manifest(maxReplicas int) string {
	return templateOf(name) + envOf(name, fmt.Sprint("maxReplicas: ", maxReplicas), "minReplicas: 1, ")
}

// floored is an Env whose group keeps four Pods, in both clusters together.
var floored = envOf("floored", "minReplicas: 4\n      maxReplicas: 12", "")

// keep waits for what the clusters hold of floored.
func keep(t *testing.T, when string, want map[string]int) {
	t.Helper()
	wait.For(t, patience, fmt.Sprintf("%v of minReplicas to be kept %s", want, when), func(ctx context.Context) error {
		got := map[string]int{}
		for cluster := range want {
			n, err := held(ctx, cluster, "floored")
			if err != nil {
				return err
			}
			got[cluster] = n
		}
		env, err := hub.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: "default", Name: "floored"})
		return wait.If(maps.Equal(got, want), fmt.Sprint(got, env.GetAllotments(), err))
	})
}

// held returns what a cluster holds of an Env: the larger of replicas and live Pods.
func held(ctx context.Context, cluster, name string) (int, error) {
	env := &v1alpha1.SandboxEnv{}
	if err := kube[cluster].Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, env); err != nil {
		return 0, err
	}
	pods := &corev1.PodList{}
	if err := kube[cluster].List(ctx, pods, client.InNamespace("default"), client.MatchingLabels{v1alpha1.LabelEnv: name}); err != nil {
		return 0, err
	}
	live := 0
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			live++
		}
	}
	replicas := 0
	for _, m := range env.MembersOf(cluster) {
		replicas += int(m.Spec.Replicas)
	}
	return max(replicas, live), nil
}

// watchSum counts what both clusters hold, until the test ends; one twice, because Pods may move between two counts.
func watchSum(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var counting sync.WaitGroup
	counts, most := 0, 0
	counting.Go(func() {
		for ctx.Err() == nil {
			first, err := held(ctx, clusters[0], name)
			second, err2 := held(ctx, clusters[1], name)
			again, err3 := held(ctx, clusters[0], name)
			if err != nil || err2 != nil || err3 != nil {
				continue
			}
			sum := min(first, again) + second
			counts, most = counts+1, max(most, sum)
			if sum > limit {
				t.Errorf("both clusters hold %d (%d or %d, and %d), more than maxReplicas, %d", sum, first, again, second, limit)
				return
			}
		}
	})
	t.Cleanup(func() {
		stop()
		counting.Wait()
		t.Logf("counted %d times: %d at most", counts, most)
		if counts < 20 || most < limit {
			t.Errorf("counted %d times, %d at most: the test saw too little", counts, most)
		}
	})
}

// callers want sandboxes in a cluster until they have them.
type callers struct {
	t       *testing.T
	cluster string
	stop    context.CancelFunc
	waiting sync.WaitGroup

	mu  sync.Mutex
	got []*sandboxv1.Sandbox
}

func (c *callers) want(n int) {
	ctx, stop := context.WithCancel(c.t.Context())
	c.stop = stop
	for range n {
		c.waiting.Go(func() {
			for ctx.Err() == nil {
				once, cancel := context.WithTimeout(ctx, 10*time.Second)
				s, err := hub.CreateSandbox(once, &sandboxv1.CreateSandboxRequest{Env: name, Clusters: []string{c.cluster}, RequireClusters: true})
				cancel()
				if err == nil {
					c.mu.Lock()
					c.got = append(c.got, s)
					c.mu.Unlock()
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond): // a caller's pause between two tries
				}
			}
		})
	}
}

func (c *callers) has() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

// leave ends what waits.
func (c *callers) leave() {
	c.stop()
	c.waiting.Wait()
}

func (c *callers) release(n int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		must.Succeed(c.t, hub.Release(c.t.Context(), c.got[0].GetId()))
		c.got = c.got[1:]
	}
}

func (c *callers) waitFor(n int) {
	c.t.Helper()
	wait.For(c.t, patience, fmt.Sprintf("%d sandboxes in %s", n, c.cluster), func(context.Context) error {
		return wait.If(c.has() == n, fmt.Sprintf("%d; %v", c.has(), shares(c.t)))
	})
}

// shares returns the rooms and what may be held, by cluster.
func shares(t *testing.T) map[string][2]int32 {
	t.Helper()
	env, err := hub.GetEnv(t.Context(), &sandboxv1.GetEnvRequest{Namespace: "default", Name: name})
	out := map[string][2]int32{}
	if err != nil {
		return out
	}
	for _, a := range env.GetAllotments() {
		for _, s := range a.GetShares() {
			out[s.GetClusterId()] = [2]int32{s.GetRoom(), s.GetMayHold()}
		}
	}
	return out
}

// stays fails if something changes within a few seconds.
func stays(t *testing.T, what string, check func() error) {
	t.Helper()
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); {
		if err := check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// I9: under demand in both clusters they hold maxReplicas together. When demand moves, room follows once the giver has shrunk. A cluster
// that is away keeps its room; so does everything when the hub starts anew. A lowered maxReplicas ends nothing.
//
// What a lost cluster kept of minReplicas the other one keeps as well, until it is back.
func TestI9OneCeilingForBothClusters(t *testing.T) {
	for _, id := range clusters {
		must.Succeed(t, stack.Apply(t.Context(), atoll.Cluster(id), manifest(limit)+"---\n"+floored))
	}
	wait.For(t, patience, "all of maxReplicas to be given out", func(context.Context) error {
		got := shares(t)
		return wait.If(len(got) == 2 && got["east"][0]+got["north"][0] == limit, got)
	})
	keep(t, "by both", map[string]int{"east": 2, "north": 2})
	watchSum(t)
	east, north := &callers{t: t, cluster: "east"}, &callers{t: t, cluster: "north"}
	east.want(5)
	north.want(5)
	east.waitFor(3)
	north.waitFor(3)
	stays(t, "each cluster has its half", func() error { return wait.If(east.has() == 3 && north.has() == 3, shares(t)) })
	wait.For(t, patience, "the reason to be told", func(ctx context.Context) error {
		out, err := atoll.Cluster("east").Kubectl(ctx, "get", "events", "-n", "default", "-o", "jsonpath={.items[*].reason}")
		return wait.If(err == nil && strings.Contains(out, "NoRoom"), fmt.Sprint(out, err))
	})

	north.leave()
	north.release(3)
	east.waitFor(5)

	east.leave()
	east.release(3)
	north.want(2)
	north.waitFor(2)
	worker := atoll.Worker("north")
	must.Succeed(t, worker.Kill())
	wait.For(t, patience, "the hub to miss north", func(ctx context.Context) error {
		got, err := hub.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: "north"})
		return wait.If(err == nil && got.GetState() != sandboxv1.ClusterState_FRESH, fmt.Sprint(got, err))
	})
	kept := shares(t)["north"]
	east.want(5)
	east.waitFor(limit - int(kept[1]))
	// The hub may have decided to take room back before. It counts as held until north confirms.
	stays(t, "the cluster that is away keeps its room", func() error {
		got := shares(t)
		return wait.If(got["north"][1] == kept[1] && east.has() == limit-int(kept[1]), fmt.Sprint(got, kept, east.has()))
	})
	keep(t, "without north", map[string]int{"east": 4})
	before := shares(t)
	must.Succeed(t, atoll.Hub.Kill())
	must.Succeed(t, atoll.Hub.Start(t.Context()))
	wait.For(t, patience, "the hub to know what it gave", func(context.Context) error {
		got := shares(t)
		return wait.If(maps.Equal(got, before), got)
	})
	must.Succeed(t, worker.Start(t.Context()))
	keep(t, "with north again", map[string]int{"east": 2, "north": 2})

	for _, id := range clusters {
		must.Succeed(t, stack.Apply(t.Context(), atoll.Cluster(id), manifest(2)))
	}
	wait.For(t, patience, "the lower maxReplicas to be divided", func(context.Context) error {
		got := shares(t)
		return wait.If(got["east"][0]+got["north"][0] <= 2, got)
	})
	for _, s := range append(append([]*sandboxv1.Sandbox(nil), east.got...), north.got...) {
		if got, err := hub.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{Id: s.GetId()}); err != nil ||
			got.GetPhase() != sandboxv1.Phase_RUNNING {
			t.Errorf("sandbox %s ended when maxReplicas was lowered: %v, %v", s.GetId(), got, err)
		}
	}
	east.leave()
	east.release(east.has())
	north.release(north.has())
}
