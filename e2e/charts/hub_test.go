// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// restrictedNamespace is one that lets in nothing but what Pod security calls restricted. It ends with the test.
func restrictedNamespace(t *testing.T, name string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: name + "-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	namespace, err := core.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := core.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return namespace.Name
}

// hubNeeds makes what the chart expects to be there: two Secrets, and a volume that its claim can have.
func hubNeeds(t *testing.T, namespace string) {
	t.Helper()
	for name, keys := range map[string][]string{"atoll-hub-tls": {"tls.crt", "tls.key", "ca.crt"}, "atoll-hub-api-keys": {"keys.yaml"}} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{}}
		for _, key := range keys {
			secret.StringData[key] = "kwok reads nothing"
		}
		_, err := core.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
		must.Succeed(t, err)
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: "data-atoll-hub-0"},
		},
	}
	_, err := core.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := core.CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// hubPod is the one Pod, which must be ready.
func hubPod(t *testing.T, namespace string) *corev1.Pod {
	t.Helper()
	pod, err := core.CoreV1().Pods(namespace).Get(t.Context(), "atoll-hub-0", metav1.GetOptions{})
	must.Succeed(t, err)
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if !ready {
		t.Fatalf("the hub's Pod is not ready: %+v", pod.Status)
	}
	return pod
}

func hubClaim(t *testing.T, namespace string) types.UID {
	t.Helper()
	claim, err := core.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data-atoll-hub-0", metav1.GetOptions{})
	must.Succeed(t, err)
	return claim.UID
}

// TestHubLivesItsLife installs, upgrades, breaks, rolls back and uninstalls. The volume is the same throughout, and stays.
func TestHubLivesItsLife(t *testing.T) {
	ctx := t.Context()
	namespace := restrictedNamespace(t, "hub-life")
	hubNeeds(t, namespace)
	release := harness.Release{Name: "atoll-hub", Namespace: namespace, Chart: helm.Chart("hub"), Values: "pdb: {enabled: true}"}
	cluster := helm.In(east.Kubeconfig())

	notes, err := cluster.Install(ctx, release)
	must.Succeed(t, err)
	wantText(t, "the notes", notes, "atollctl pki hub --dir pki --name atoll-hub --namespace "+namespace, "atoll-hub api-key new",
		"rollout status statefulset/atoll-hub", "hub.address=atoll-hub-link."+namespace+".svc:8443")
	first, claim := hubPod(t, namespace), hubClaim(t, namespace)
	if got := first.Spec.Containers[0].Image; got != "atoll-hub:0.1.0" {
		t.Errorf("installed: %s", got)
	}

	// The same again, and a chart of another version: what is the same of the Pod leaves it alone.
	release.Values = "pdb: {enabled: false}\nimage: {tag: 0.1.0}"
	release.Chart, err = helm.Package(ctx, release.Chart, "0.2.0", t.TempDir())
	must.Succeed(t, err)
	_, err = cluster.Upgrade(ctx, release)
	must.Succeed(t, err)
	if second := hubPod(t, namespace); second.UID != first.UID {
		t.Error("an upgrade that changes nothing of the Pod replaced it")
	}
	if _, err := core.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, "atoll-hub", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the budget that is no longer wanted: %v", err)
	}

	release.Values = ""
	_, err = cluster.Upgrade(ctx, release)
	must.Succeed(t, err)
	if third := hubPod(t, namespace); third.UID == first.UID || third.Spec.Containers[0].Image != "atoll-hub:0.2.0" {
		t.Errorf("upgraded: %s", third.Spec.Containers[0].Image)
	}

	// An image that no node can get. Rolling back replaces the Pod that never became ready, without a hand.
	release.Values = "image: {repository: atoll-hub/fail-pull}"
	if _, err := cluster.Upgrade(ctx, release, "--timeout", "3s"); err == nil {
		t.Error("helm calls a hub ready whose image cannot be pulled")
	}
	must.Succeed(t, cluster.Rollback(ctx, release, 1))
	if back := hubPod(t, namespace); back.Spec.Containers[0].Image != "atoll-hub:0.1.0" {
		t.Errorf("rolled back: %s", back.Spec.Containers[0].Image)
	}
	if got := hubClaim(t, namespace); got != claim {
		t.Error("the volume was replaced")
	}

	must.Succeed(t, cluster.Uninstall(ctx, release))
	want := []string{
		"PersistentVolumeClaim/data-atoll-hub-0", "Secret/atoll-hub-api-keys", "Secret/atoll-hub-clusters", "Secret/atoll-hub-tls",
	}
	wait.For(t, 20*time.Second, "the rest to be gone", func(ctx context.Context) error {
		left, err := remains(ctx, namespace)
		if diff := cmp.Diff(want, left); err == nil && diff != "" {
			err = fmt.Errorf("left behind (-want +got):\n%s", diff)
		}
		return err
	})
}

// remains lists what a namespace holds of the kinds that the chart has, and of those that come of them.
func remains(ctx context.Context, namespace string) ([]string, error) {
	out, err := east.Kubectl(ctx, "-n", namespace, "get", "-o", "name", "--ignore-not-found",
		"pods,services,endpointslices,statefulsets,controllerrevisions,secrets,configmaps,pvc,pdb,networkpolicies,serviceaccounts")
	if err != nil {
		return nil, fmt.Errorf("listing what is left: %w", err)
	}
	kinds := strings.NewReplacer("persistentvolumeclaim/", "PersistentVolumeClaim/", "secret/", "Secret/")
	var names []string
	for name := range strings.Lines(out) {
		name = strings.TrimSpace(name)
		if name != "configmap/kube-root-ca.crt" && name != "serviceaccount/default" {
			names = append(names, kinds.Replace(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// TestNotesInviteToTheLinksPort: an invitation names port 8443 by itself, so another one has to be told.
func TestNotesInviteToTheLinksPort(t *testing.T) {
	release := harness.Release{Name: "atoll-hub", Namespace: restrictedNamespace(t, "hub-notes"), Chart: helm.Chart("hub")}
	const named = "ca: {enabled: true, hubNames: [hub.example.org, other]}\n"
	for values, want := range map[string]string{
		"ca: {enabled: true}": " --hub-address HOST:8443",
		"ca: {enabled: true}\nservice: {link: {type: NodePort, nodePort: 30443}}":      " --hub-address HOST:30443",
		"ca: {enabled: true, hubNames: ['2001:db8::1']}\nservice: {link: {port: 443}}": " --hub-address [2001:db8::1]:443",
		named:                                   "",
		named + "service: {link: {port: 9443}}": " --hub-address hub.example.org:9443",
		named + "service: {link: {type: NodePort, nodePort: 30443}}":                " --hub-address hub.example.org:30443",
		named + "service: {link: {type: NodePort}}":                                 " --hub-address hub.example.org:NODE_PORT",
		named + "service: {link: {type: LoadBalancer, nodePort: 30443}}":            "",
		named + "service: {link: {type: LoadBalancer, port: 443, nodePort: 30443}}": " --hub-address hub.example.org:443",
	} {
		release.Values = values
		notes, err := helm.In(east.Kubeconfig()).Install(t.Context(), release, "--dry-run=server")
		must.Succeed(t, err)
		_, line, found := strings.Cut(notes, "atollctl cluster invite NAME")
		if line, _, _ = strings.Cut(line, "\n"); !found || line != want {
			t.Errorf("%s: the notes invite with %q, want %q", values, line, want)
		}
	}
}

// wantTaken has the API server look at every object of a kind that it knows, field by field.
func wantTaken(t *testing.T, values, namespace string, objects harness.Objects) {
	t.Helper()
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Certificate" || o.GetKind() == "ServiceMonitor" || o.GetKind() == "PrometheusRule"
	})
	for _, o := range objects {
		if o.GetNamespace() != "" {
			o.SetNamespace(namespace)
		}
	}
	manifest, err := objects.Manifest()
	must.Succeed(t, err)
	_, err = east.KubectlInput(t.Context(), strings.NewReader(manifest), "-n", namespace, "apply",
		"--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
	if err != nil {
		t.Errorf("%s: %v", values, err)
	}
}

func TestChartsAreWhatTheAPIServerTakes(t *testing.T) {
	namespace := restrictedNamespace(t, "chart-fields")
	for _, values := range []string{"", everything, "persistence: {enabled: false}", "persistence: {existingClaim: mine}"} {
		wantTaken(t, values, namespace, renderHub(t, values))
	}
	for _, values := range []string{"", allOfWorker} {
		wantTaken(t, values, namespace, renderWorker(t, values))
	}
	if as[appsv1.Deployment](t, renderWorker(t, ""), "Deployment", "atoll-worker").Namespace != "atoll-system" {
		t.Error("the Deployment is not in the release's namespace")
	}
}
