// SPDX-License-Identifier: Apache-2.0

package hosted_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// claims claims and releases without a pause until end is called. Each claim has a key, and its caller tries again as one may.
type claims struct {
	stop  context.CancelFunc
	ended chan struct{}
	n     int
	err   error
}

func claiming(t *testing.T) *claims {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &claims{stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for ; ctx.Err() == nil && c.err == nil; c.n++ {
			request := &sandboxv1.CreateSandboxRequest{Env: envName, ClaimKey: fmt.Sprintf("%s-%d-%d", t.Name(), time.Now().UnixNano(), c.n)}
			c.err = wait.Until(context.WithoutCancel(ctx), patience, "a claim", func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				sandbox, err := hub.CreateSandbox(ctx, request)
				if err != nil {
					return err
				}
				return hub.Release(ctx, sandbox.GetId())
			})
		}
	}()
	t.Cleanup(func() { stop(); <-c.ended })
	return c
}

func (c *claims) end(t *testing.T) {
	t.Helper()
	c.stop()
	<-c.ended
	must.Succeed(t, c.err)
	if t.Logf("%d claims meanwhile", c.n); c.n == 0 {
		t.Error("nothing was claimed meanwhile")
	}
}

// serves claims with a key in a cluster, when that has a Pod.
func serves(t *testing.T, cluster, key string) *sandboxv1.Sandbox {
	t.Helper()
	var sandbox *sandboxv1.Sandbox
	began := time.Now()
	wait.For(t, patience, cluster+" to serve", func(ctx context.Context) (err error) {
		sandbox, err = hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
			Env: envName, Clusters: []string{cluster}, RequireClusters: true, ClaimKey: key,
		})
		return err
	})
	t.Logf("%s serves after %s", cluster, time.Since(began).Round(10*time.Millisecond))
	return sandbox
}

// keeps examines that a key still has its sandbox, whose Pod runs.
func keeps(t *testing.T, cluster, key string, want *sandboxv1.Sandbox) {
	t.Helper()
	if got := serves(t, cluster, key); got.GetId() != want.GetId() || got.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Errorf("the key of %s has %s %s in %s now", want.GetId(), got.GetPhase(), got.GetId(), cluster)
	}
}

func kube(t *testing.T, cluster string) client.Client {
	t.Helper()
	c, err := atoll.Kube(cluster)
	must.Succeed(t, err)
	return c
}

// holder is the process that leads a cluster.
func holder(ctx context.Context, t *testing.T, cluster string) (string, error) {
	lease := &coordinationv1.Lease{}
	err := kube(t, cluster).Get(ctx, client.ObjectKey{Namespace: stack.Namespace, Name: "atoll-worker"}, lease)
	return ptr.Deref(lease.Spec.HolderIdentity, ""), err
}

// running returns the replica that runs a cluster's worker, by its metrics.
func running(t *testing.T, cluster string) stack.Program {
	t.Helper()
	var found stack.Program
	wait.For(t, patience, "a replica to run "+cluster, func(ctx context.Context) error {
		for _, replica := range replicas {
			if runs, err := atoll.Hosts(ctx, replica, cluster); err == nil && runs {
				found = replica
				return nil
			}
		}
		return errors.New("none does")
	})
	return found
}

func host(t *testing.T) {
	t.Helper()
	e := stack.Env{Name: envName, Image: "test.local/hosted:1", Pod: []func(*corev1.PodSpec){stack.ClosedPod}}
	for _, cluster := range append(slices.Clone(hosted), hosting) {
		e.Members = append(e.Members, stack.Member{Cluster: cluster, Replicas: 6})
	}
	must.Succeed(t, e.Apply(t.Context(), atoll.Cluster(hosting)))
	for _, cluster := range hosted {
		must.Succeed(t, atoll.Host(t.Context(), hosting, cluster, cluster))
		must.Succeed(t, e.Apply(t.Context(), atoll.Cluster(cluster)))
	}
}

// One federation, step by step, while callers claim: hosted clusters serve, and outlive what the steps name.
func TestHostedClusters(t *testing.T) {
	host(t)
	first := map[string]*sandboxv1.Sandbox{}
	for _, cluster := range append(slices.Clone(hosted), hosting) {
		first[cluster] = serves(t, cluster, "first "+cluster)
	}
	kept := func(t *testing.T) {
		t.Helper()
		for cluster, sandbox := range first {
			keeps(t, cluster, "first "+cluster, sandbox)
		}
	}
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"replicas share the clusters", shared},
		{"I7: a replica is killed", killed},
		{"new credentials", newCredentials},
		{"to a worker of its own and back", moved},
		{"renamed", renamed},
		{"by Cluster API", clusterAPI},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t); kept(t) }) {
			return
		}
	}
	must.Succeed(t, atoll.Verify(t.Context()))
	t.Run("taken away", takenAway)
}

func shared(t *testing.T) {
	if one, other := running(t, "east"), running(t, "north"); one == other {
		t.Errorf("%s runs both", one)
	}
}

func killed(t *testing.T) {
	calls := claiming(t)
	replica := running(t, "east")
	before, err := holder(t.Context(), t, "east")
	must.Succeed(t, err)
	must.Succeed(t, replica.Kill())
	wait.For(t, patience, "another replica to lead east", func(ctx context.Context) error {
		now, err := holder(ctx, t, "east")
		return errors.Join(err, wait.If(now != before && now != "", now))
	})
	serves(t, "east", "after the kill")
	must.Succeed(t, replica.Start(t.Context()))
	calls.end(t)
}

// newCredentials makes those that the worker has invalid.
func newCredentials(t *testing.T) {
	calls := claiming(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: "atoll-worker"}}
	east := kube(t, "east")
	must.Succeed(t, east.Delete(t.Context(), account.DeepCopy()))
	must.Succeed(t, east.Create(t.Context(), account.DeepCopy()))
	must.Succeed(t, atoll.HostAs(t.Context(), hosting, "east", "east"))
	serves(t, "east", "with new credentials")
	calls.end(t)
}

// moved follows docs/fleets.md.
func moved(t *testing.T) {
	ctx := t.Context()
	calls := claiming(t)
	mgmt, east := kube(t, hosting), kube(t, "east")
	identity, secret := &corev1.Secret{}, &corev1.Secret{}
	must.Succeed(t, mgmt.Get(ctx, client.ObjectKey{Namespace: stack.Namespace, Name: "atoll-worker-identity-east"}, identity))
	must.Succeed(t, east.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: "atoll-worker-identity"}, Data: identity.Data,
	}))
	before, err := holder(ctx, t, "east")
	must.Succeed(t, err)
	leads := func(what string, led func(holder string) bool) {
		t.Helper()
		wait.For(t, patience, what+" to lead east", func(ctx context.Context) error {
			now, err := holder(ctx, t, "east")
			return errors.Join(err, wait.If(now != "" && led(now), now))
		})
	}
	joined := make(chan error, 1)
	go func() { joined <- atoll.StartOwn(ctx, "east") }()
	must.Succeed(t, mgmt.Get(ctx, client.ObjectKey{Namespace: stack.Namespace, Name: "east"}, secret))
	must.Succeed(t, mgmt.Delete(ctx, secret))
	leads("its own worker", func(now string) bool { return now != before })
	must.Succeed(t, <-joined)
	serves(t, "east", "by its own worker")
	own, err := holder(ctx, t, "east")
	must.Succeed(t, err)

	must.Succeed(t, east.Get(ctx, client.ObjectKey{Namespace: stack.Namespace, Name: "atoll-worker-identity"}, identity))
	back := &corev1.Secret{}
	must.Succeed(t, mgmt.Get(ctx, client.ObjectKey{Namespace: stack.Namespace, Name: "atoll-worker-identity-east"}, back))
	back.Data = identity.Data
	must.Succeed(t, mgmt.Update(ctx, back))
	must.Succeed(t, atoll.HostAs(ctx, hosting, "east", "east"))
	must.Succeed(t, atoll.StopOwn("east"))
	leads("a hosted worker", func(now string) bool { return now != own })
	serves(t, "east", "hosted again")
	calls.end(t)
}

func renamed(t *testing.T) {
	calls := claiming(t)
	must.Succeed(t, atoll.HostAs(t.Context(), hosting, "north", "another-name"))
	must.Succeed(t, kube(t, hosting).Delete(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: "north"}}))
	serves(t, "north", "renamed")
	calls.end(t)
}

// capi is north as Cluster API has it.
const capi = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: north-capi, namespace: fleet, labels: {agentbox.navix.sh/cluster-id: north}}
spec:
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: north}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DockerCluster, name: north}
`

// clusterAPI: another release takes north over by its Cluster, with the kubeconfig of its administrator, and gives it back.
func clusterAPI(t *testing.T) {
	ctx := t.Context()
	calls := claiming(t)
	mgmt, live := atoll.Cluster(hosting), kube(t, hosting)
	kubectl := func(stdin string, args ...string) {
		t.Helper()
		if out, err := mgmt.KubectlInput(ctx, strings.NewReader(stdin), args...); err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	kubectl("", "apply", "--server-side", "-f",
		filepath.Join("..", "..", "worker", "internal", "hosted", "testdata", "crds", "cluster.x-k8s.io_clusters.yaml"))
	wait.For(t, patience, "the CRD", func(ctx context.Context) error { // kubectl fails as long as there are no conditions
		_, err := mgmt.KubectlInput(ctx, nil, "wait", "--for=condition=Established", "crd/clusters.cluster.x-k8s.io")
		return err
	})
	kubectl("", "create", "namespace", "fleet")
	replica, err := atoll.HostingClusterAPI(ctx, hosting, "fleet")
	must.Succeed(t, err)
	must.Succeed(t, replica.Start(ctx))
	defer func() { must.Succeed(t, replica.Stop()) }()
	kubeconfig, err := os.ReadFile(atoll.Cluster("north").Kubeconfig())
	must.Succeed(t, err)
	kubectl(capi, "apply", "-f", "-")
	must.Succeed(t, live.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "north-capi-kubeconfig",
			Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "north-capi"}},
		Type: "cluster.x-k8s.io/secret", Data: map[string][]byte{"value": kubeconfig},
	}))
	kubectl("", "patch", "--namespace=fleet", "cluster.cluster.x-k8s.io", "north-capi", "--subresource=status", "--type=merge", "-p",
		`{"status": {"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true}, "phase": "Provisioned"}}`)
	must.Succeed(t, live.Delete(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: "another-name"}}))
	hosts := func(want bool) {
		t.Helper()
		wait.For(t, patience, fmt.Sprintf("north by Cluster API: %t", want), func(ctx context.Context) error {
			runs, err := atoll.Hosts(ctx, replica, "north")
			return errors.Join(err, wait.If(runs == want, runs))
		})
	}
	hosts(true)
	serves(t, "north", "by Cluster API")
	kubectl("", "delete", "--namespace=fleet", "cluster.cluster.x-k8s.io", "north-capi")
	hosts(false)
	must.Succeed(t, atoll.HostAs(ctx, hosting, "north", "another-name"))
	serves(t, "north", "by its kubeconfig again")
	calls.end(t)
}

// takenAway: its sandbox runs on, and others are served.
func takenAway(t *testing.T) {
	ctx := t.Context()
	calls := claiming(t)
	sandbox := serves(t, "north", "taken away")
	must.Succeed(t, kube(t, hosting).Delete(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: "another-name"}}))
	wait.For(t, patience, "north to be away", func(ctx context.Context) error {
		north, err := hub.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: "north"})
		return errors.Join(err, wait.If(north.GetState() == sandboxv1.ClusterState_UNREACHABLE, north))
	})
	serves(t, "east", "without north")
	calls.end(t)
	pods := &corev1.PodList{}
	must.Succeed(t, kube(t, "north").List(ctx, pods, client.InNamespace("default")))
	if !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Name == sandbox.GetPod() && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp.IsZero()
	}) {
		t.Errorf("the Pod of %s is gone", sandbox.GetId())
	}
	if runs, err := atoll.Hosts(ctx, running(t, "east"), "north"); err != nil || runs {
		t.Errorf("north is still hosted: %v", err)
	}
}
