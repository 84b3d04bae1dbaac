// SPDX-License-Identifier: Apache-2.0

//go:build kind

package walk_test

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

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// TestWalk is one story; a step builds on those before it.
func TestWalk(t *testing.T) {
	type step struct {
		name string
		do   func(*testing.T)
	}
	steps := []step{
		{"a hub of three replicas on an etcd", installHub},
		{"clusters join by the printed line", joinFirst},
		{"one apply fills the catalogue", fillCatalogue},
		{"a further cluster joins by the printed line", joinFurther},
		{"a cluster is hosted", host},
		{"a change goes out in stages", changeInStages},
		{"a change that breaks claims goes back", breakClaims},
		{"a user keeps a field", keepField},
		{"a cluster is away", beAway},
		{"replicas are killed", killReplicas},
		{"the hub is upgraded", upgradeHub},
		{"the catalogue is written in the hub's cluster", writeInTheHubsCluster},
		{"kubectl and helm reach a cluster through the hub", reachThroughHub},
		{"nothing is wrong", verify},
	}
	if *agentImages != "" {
		steps = slices.Insert(steps, 4, step{"E2B's stock client", serveE2B})
	}
	for _, step := range steps {
		begin := time.Now()
		if !t.Run(step.name, step.do) {
			return
		}
		t.Logf("%s: %s", step.name, time.Since(begin).Round(100*time.Millisecond))
	}
}

// join runs the line that invite prints, and nothing else.
func join(t *testing.T, id string) {
	t.Helper()
	printed := atollctl(t, "cluster", "invite", id, "--hub-address", linkAddress, "--chart", helm.Chart("worker"))
	line := ""
	for l := range strings.Lines(printed) {
		if strings.HasPrefix(l, "helm install ") {
			line = l
		}
	}
	_, err := command(t.Context(), "env", "KUBECONFIG="+nodes[id].Kubeconfig(), "bash", "-c", line)
	must.Succeed(t, err)
}

func joinFirst(t *testing.T) {
	for _, id := range []string{"east", "west"} {
		join(t, id)
	}
	wait.For(t, patience, "both to attach", func(ctx context.Context) error {
		list, err := hub.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
		return wait.If(err == nil && len(list.GetClusters()) == 2, fmt.Sprint(list, err))
	})
	atollctl(t, "clusters", "--wait=fresh", "--timeout", patience.String())
}

func waitState(t *testing.T, id string, want sandboxv1.ClusterState) {
	t.Helper()
	wait.For(t, patience, fmt.Sprintf("%s to be %s", id, want), func(ctx context.Context) error {
		list, err := hub.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
		return errors.Join(err, wait.If(slices.ContainsFunc(list.GetClusters(), func(c *sandboxv1.Cluster) bool {
			return c.GetId() == id && c.GetState() == want
		}), list.GetClusters()))
	})
}

func claimIn(ctx context.Context, cluster string) (*sandboxv1.Sandbox, error) {
	return hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: callersEnv, Clusters: []string{cluster}, RequireClusters: true})
}

// serves claims from a cluster and releases, once that has a Pod.
func serves(t *testing.T, cluster string) {
	t.Helper()
	wait.For(t, patience, cluster+" to serve", func(ctx context.Context) error {
		sandbox, err := claimIn(ctx, cluster)
		if err != nil {
			return err
		}
		return hub.Release(ctx, sandbox.GetId())
	})
}

// joinFurther adds a cluster that Envs of the catalogue name already. It serves within 30 s of the line on a machine with room; here four
// clusters share one, and twice that fails.
func joinFurther(t *testing.T) {
	begin := time.Now()
	_, err := nodes["south"].Kubectl(t.Context(), "run", "bare", "--image", poolImage, "--image-pull-policy", "IfNotPresent")
	must.Succeed(t, err)
	_, err = nodes["south"].Kubectl(t.Context(), "wait", "pod", "bare", "--for", "condition=Ready", "--timeout", patience.String())
	must.Succeed(t, err)
	bare := time.Since(begin)
	begin = time.Now()
	join(t, "south")
	serves(t, "south")
	took := time.Since(begin)
	t.Logf("south serves %s after the line was begun; one Pod by kubectl took %s", took.Round(100*time.Millisecond),
		bare.Round(100*time.Millisecond))
	if took > max(time.Minute, 10*bare) {
		t.Errorf("that is too long")
	}
}

// host serves north by a worker in the cluster of the hub, as docs/fleets.md says.
func host(t *testing.T) {
	ctx, east, north := t.Context(), nodes["east"], nodes["north"]
	_, err := helm.In(east.Kubeconfig()).Install(ctx, harness.Release{
		Name: "atoll-hosting", Namespace: stack.Namespace, Chart: helm.Chart("worker"),
		Values: "hosted: {enabled: true}\nhub: {address: \"" + linkAddress + "\"}\nreplicas: 1\n",
	})
	must.Succeed(t, err)
	must.Succeed(t, stack.Apply(ctx, north, atollctl(t, "cluster", "rbac", "north", "--crds", "--policies"), "--server-side"))
	token, err := north.Kubectl(ctx, "-n", stack.Namespace, "create", "token", "atoll-worker", "--duration", "2h")
	must.Succeed(t, err)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	must.Succeed(t, os.WriteFile(ca, north.Config().CAData, 0o600))
	kubeconfig := filepath.Join(t.TempDir(), "north")
	for _, args := range [][]string{
		{"set-cluster", "north", "--server", "https://" + north.Node() + ":6443", "--certificate-authority", ca, "--embed-certs"},
		{"set-credentials", "worker", "--token", token},
		{"set-context", "north", "--cluster", "north", "--user", "worker"},
		{"use-context", "north"},
	} {
		_, err := command(ctx, "kubectl", append([]string{"config", "--kubeconfig", kubeconfig}, args...)...)
		must.Succeed(t, err)
	}
	invitation := strings.TrimSpace(atollctl(t, "cluster", "invite", "north", "-o", "name"))
	applySecret(t, east, "atoll-hosting-atoll-worker-invitations", nil, map[string][]byte{"north": []byte(invitation)})
	applySecret(t, east, "north", map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
		map[string][]byte{"kubeconfig": read(t, kubeconfig)})
	serves(t, "north")
	t.Log(atollctl(t, "clusters", "-o", "wide"))
}

// reachThroughHub uses kubectl and helm by a kubeconfig that has no way to south but through the hub.
func reachThroughHub(t *testing.T) {
	ctx, south := t.Context(), nodes["south"]
	_, err := command(ctx, "helm", "upgrade", "atoll-worker", helm.Chart("worker"), "--kubeconfig", south.Kubeconfig(), "-n", stack.Namespace,
		"--reuse-values", "--set", "serveKubernetes.enabled=true", "--wait")
	must.Succeed(t, err)
	_, err = south.Kubectl(ctx, "create", "clusterrolebinding", "atoll-me", "--clusterrole", "cluster-admin", "--user", "atoll:key:me")
	must.Succeed(t, err)
	folder := t.TempDir()
	kubeconfig := filepath.Join(folder, "south.kubeconfig")
	must.Succeed(t, os.WriteFile(kubeconfig, []byte(atollctl(t, "kubeconfig", "south")), 0o600))
	through := func(name string, args ...string) string {
		t.Helper()
		out, err := command(ctx, name, append([]string{"--kubeconfig", kubeconfig}, args...)...)
		must.Succeed(t, err)
		return out
	}
	wait.For(t, patience, "south to be reached through the hub", func(ctx context.Context) error {
		out, err := command(ctx, "kubectl", "--kubeconfig", kubeconfig, "auth", "whoami")
		return errors.Join(err, wait.If(strings.Contains(out, "atoll:key:me"), out))
	})
	chart := filepath.Join(folder, "chart")
	must.Succeed(t, os.MkdirAll(filepath.Join(chart, "templates"), 0o700))
	for name, text := range map[string]string{
		"Chart.yaml":        "apiVersion: v2\nname: small\nversion: 0.1.0\n",
		"templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: small}\ndata: {text: {{ .Values.text | quote }}}\n",
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(chart, name), []byte(text), 0o600))
	}
	through("helm", "install", "small", chart, "--set", "text=one", "--wait")
	through("helm", "upgrade", "small", chart, "--set", "text="+strings.Repeat("x", 100_000), "--wait")
	if out := through("helm", "list"); !strings.Contains(out, "small") {
		t.Errorf("helm lists\n%s", out)
	}
	if out := through("kubectl", "get", "cm", "small", "-o", "jsonpath={.data.text}"); len(out) != 100_000 {
		t.Errorf("kubectl reads %d bytes of 100000", len(out))
	}
	through("helm", "uninstall", "small", "--wait")

	sandbox, err := claimIn(ctx, "south")
	must.Succeed(t, err)
	pod := sandbox.GetPod()
	if out := through("kubectl", "-n", "kube-system", "logs", "deployment/coredns"); !strings.Contains(out, "CoreDNS") {
		t.Errorf("kubectl logs prints %q", out)
	}
	out := through("kubectl", "-n", "kube-system", "exec", "etcd-"+south.Node(), "--", "etcd", "--version")
	if !strings.Contains(out, "etcd Version") {
		t.Errorf("kubectl exec prints %q", out)
	}
	if out := through("kubectl", "get", "pod", pod, "-o", "name"); strings.TrimSpace(out) != "pod/"+pod {
		t.Errorf("kubectl get prints %q", out)
	}
	must.Succeed(t, hub.Release(ctx, sandbox.GetId()))
	if out := through("kubectl", "get", "pods", "-A", "--watch", "--request-timeout", "5s"); !strings.Contains(out, "coredns") {
		t.Errorf("a watch shows\n%s", out)
	}
}

// verify compares what the hub tells with what the clusters have.
func verify(t *testing.T) {
	args := []string{"verify"}
	for id, node := range nodes {
		args = append(args, "--kubeconfig", id+"="+node.Kubeconfig())
	}
	t.Log(atollctl(t, args...))
}
