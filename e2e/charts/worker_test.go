// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/must"
)

func workerRelease(values string) harness.Release {
	return harness.Release{Name: "atoll-worker", Namespace: "atoll-system", Chart: helm.Chart("worker"), Values: "clusterID: east\n" + values}
}

// installWorker installs the worker's chart until the end of the test. kwok stands in for the program: only the
// test writes.
func installWorker(t *testing.T) {
	t.Helper()
	cluster := helm.In(east.Kubeconfig())
	_, err := cluster.Install(t.Context(), workerRelease("replicas: 0"))
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := cluster.Uninstall(context.Background(), workerRelease("")); err != nil {
			t.Error(err)
		}
		deleteCRDs(t)
	})
	enforced(t, step{
		by: user, args: "run intruder --image=registry.example/x --labels=agentbox.navix.sh/env=x --dry-run=server",
		refused: "metadata.labels: agentbox.navix.sh/env",
	})
}

var crds = []string{"sandboxenvs.agents.navix.sh", "sandboxpools.agents.navix.sh", "sandboxtemplates.agents.navix.sh"}

// deleteCRDs removes what the chart leaves behind, so that a release of another namespace can bring it again.
func deleteCRDs(t *testing.T) {
	t.Helper()
	if _, err := east.Kubectl(context.Background(), append([]string{"delete", "crd", "--ignore-not-found"}, crds...)...); err != nil {
		t.Error(err)
	}
}

func mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := east.Kubectl(t.Context(), args...)
	must.Succeed(t, err)
	return out
}

// clusterWide lists what there is of the chart outside any namespace.
func clusterWide(t *testing.T) []string {
	t.Helper()
	var names []string
	for name := range strings.Lines(mustKubectl(t, "get", "-o", "name",
		"crd,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings")) {
		if strings.Contains(name, "atoll-") || strings.Contains(name, "agents.navix.sh") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	slices.Sort(names)
	return names
}

func workerArgs(t *testing.T, namespace string) []string {
	t.Helper()
	deployment, err := core.AppsV1().Deployments(namespace).Get(t.Context(), "atoll-worker", metav1.GetOptions{})
	must.Succeed(t, err)
	if ready := deployment.Status.ReadyReplicas; ready != 2 {
		t.Errorf("%d replicas are ready, not 2", ready)
	}
	return deployment.Spec.Template.Spec.Containers[0].Args
}

// TestWorkerLivesItsLife installs, upgrades, breaks, rolls back, uninstalls and comes back. The CRDs are upgraded, and they
// and all Envs outlive the release.
func TestWorkerLivesItsLife(t *testing.T) {
	ctx := t.Context()
	namespace := restrictedNamespace(t, "worker-life")
	t.Cleanup(func() { deleteCRDs(t) })
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "atoll-worker-tls"},
		StringData: map[string]string{"tls.crt": "", "tls.key": "", "ca.crt": ""}}
	_, err := core.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	must.Succeed(t, err)
	release := workerRelease("hub: {address: hub.example.org:8443}")
	release.Namespace = namespace
	cluster := helm.In(east.Kubeconfig())

	release.Chart = olderChart(t)
	notes, err := cluster.Install(ctx, release)
	must.Succeed(t, err)
	wantText(t, "the notes", notes, "as east, member of the federation of the hub at hub.example.org:8443",
		"rollout status deployment/atoll-worker", "atollctl pki cluster east --dir pki --name atoll-worker --namespace "+namespace,
		"get lease atoll-worker")
	installed := clusterWide(t)
	if args := workerArgs(t, namespace); !slices.Contains(args, "--log-level=info") {
		t.Errorf("installed: %q", args)
	}
	checkAccounts(t, namespace)
	tell(t, []step{{by: user, args: apply, stdin: envManifest}})
	uid := mustKubectl(t, "get", "sandboxenv", "told", "-o", "jsonpath={.metadata.uid}")

	release.Values += "\nlogLevel: debug"
	release.Chart, err = helm.Package(ctx, helm.Chart("worker"), "0.2.0", t.TempDir())
	must.Succeed(t, err)
	_, err = cluster.Upgrade(ctx, release)
	must.Succeed(t, err)
	if got := mustKubectl(t, "get", "crd", crds[0], "-o", "jsonpath={.spec.names.shortNames}"); got != `["sbe"]` {
		t.Errorf("the CRD was not upgraded: short names %s", got)
	}
	if args := workerArgs(t, namespace); !slices.Contains(args, "--log-level=debug") {
		t.Errorf("upgraded: %q", args)
	}

	// An image that no node can get: the old replicas stay until the new ones are ready, so service goes on.
	if _, err := cluster.Upgrade(ctx, withValues(release, "image: {repository: atoll-worker/fail-pull}"), "--timeout", "3s"); err == nil {
		t.Error("helm calls a worker ready whose image cannot be pulled")
	}
	workerArgs(t, namespace)
	must.Succeed(t, cluster.Rollback(ctx, release, 1))
	if args := workerArgs(t, namespace); !slices.Contains(args, "--log-level=info") {
		t.Errorf("rolled back: %q", args)
	}
	if diff := cmp.Diff(installed, clusterWide(t)); diff != "" {
		t.Errorf("upgraded and rolled back (-before +after):\n%s", diff)
	}

	must.Succeed(t, cluster.Uninstall(ctx, release))
	var kept []string
	for _, name := range crds {
		kept = append(kept, "customresourcedefinition.apiextensions.k8s.io/"+name)
	}
	if diff := cmp.Diff(kept, clusterWide(t)); diff != "" {
		t.Errorf("left in the cluster (-want +got):\n%s", diff)
	}
	if got := mustKubectl(t, "get", "sandboxenv", "told", "-o", "jsonpath={.metadata.uid}"); got != uid {
		t.Error("the Env did not outlive the release")
	}
	left, err := remains(ctx, namespace)
	if diff := cmp.Diff([]string{"Secret/atoll-worker-tls"}, left); err != nil || diff != "" {
		t.Errorf("%v: left in the namespace (-want +got):\n%s", err, diff)
	}
	comesBack(t, cluster, release)
}

// olderChart is the chart with a CRD that it had at some time: without a short name.
func olderChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "atoll-worker")
	must.Succeed(t, os.CopyFS(dir, os.DirFS(helm.Chart("worker"))))
	path := filepath.Join(dir, "files", "crds", "agents.navix.sh_sandboxenvs.yaml")
	content, err := os.ReadFile(path)
	must.Succeed(t, err)
	older := strings.Replace(string(content), "    shortNames:\n    - sbe\n", "", 1)
	if older == string(content) {
		t.Fatal("the CRD has no short name to do without")
	}
	must.Succeed(t, os.WriteFile(path, []byte(older), 0o600))
	return dir
}

// comesBack installs a release again over the CRDs that its predecessor left.
func comesBack(t *testing.T, cluster *harness.Cluster, release harness.Release) {
	t.Helper()
	elsewhere := release
	elsewhere.Namespace = restrictedNamespace(t, "worker-elsewhere")
	if _, err := cluster.Install(t.Context(), elsewhere, "--dry-run=server"); err == nil ||
		!strings.Contains(err.Error(), "invalid ownership metadata") {
		t.Errorf("another release takes over the CRDs without being told to: %v", err)
	}
	for _, again := range []struct {
		release harness.Release
		args    []string
	}{{release: release}, {withValues(elsewhere, "replicas: 0"), []string{"--take-ownership"}},
		{release: withValues(release, "crds: {install: false}")}} {
		_, err := cluster.Install(t.Context(), again.release, again.args...)
		must.Succeed(t, err)
		must.Succeed(t, cluster.Uninstall(t.Context(), again.release))
	}
	mustKubectl(t, "get", "sandboxenv", "told")
}

func withValues(r harness.Release, values string) harness.Release {
	r.Values += "\n" + values
	return r
}

// checkAccounts asks the API server what the release's accounts may do: the bindings are of its namespace.
func checkAccounts(t *testing.T, namespace string) {
	t.Helper()
	for _, ask := range []struct{ account, may, want string }{
		{"atoll-worker", "patch pods -n default", "yes"},
		{"atoll-worker", "patch sandboxenvs.agents.navix.sh --subresource=status -n default", "yes"},
		{"atoll-worker", "update leases.coordination.k8s.io/atoll-worker -n " + namespace, "yes"},
		{"atoll-worker", "create serviceaccounts/atoll-sync --subresource=token -n " + namespace, "yes"},
		{"atoll-worker", "create serviceaccounts/default --subresource=token -n " + namespace, "no"},
		{"atoll-worker", "get secrets -n " + namespace, "no"},
		{"atoll-worker", "update configmaps/atoll-worker-state -n default", "no"},
		{"atoll-sync", "patch sandboxenvs.agents.navix.sh --subresource=status -n default", "yes"},
		{"atoll-sync", "patch pods -n default", "no"},
		{"atoll-worker", "create serviceaccounts/atoll-catalog --subresource=token -n " + namespace, "yes"},
		{"atoll-catalog", "create sandboxtemplates.agents.navix.sh", "yes"},
		{"atoll-catalog", "delete sandboxenvs.agents.navix.sh -n default", "yes"},
		{"atoll-catalog", "patch sandboxpools.agents.navix.sh -n default", "no"},
	} {
		args := append([]string{"auth", "can-i", "--as=system:serviceaccount:" + namespace + ":" + ask.account}, strings.Fields(ask.may)...)
		out, err := east.Kubectl(t.Context(), args...) // which fails when the answer is no
		if got := strings.TrimSpace(out); got != ask.want {
			t.Errorf("may %s %s? %s (%v)", ask.account, ask.may, got, err)
		}
	}
}
