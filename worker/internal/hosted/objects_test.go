// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
)

// following is a provider of objects that runs, and what it has engaged; a Host serves that.
type following struct {
	*planetest.Place
	engagements
	*Host
	t *testing.T
}

// Engage records the call, and lets the Host serve.
func (f *following) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	_ = f.engagements.Engage(ctx, name, cl)
	return f.Host.Engage(ctx, name, cl)
}

// follow runs a provider with the rights of the chart, and those to Secrets in the namespace of the credentials.
func follow(t *testing.T, s source, place *planetest.Place, secrets string) *following {
	t.Helper()
	f := &following{Place: place, Host: newHost(t), t: t}
	f.apply("--namespace="+place.Namespace, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: hosting}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: hosting}
rules:
- {apiGroups: [cluster.x-k8s.io, multicluster.x-k8s.io], resources: [clusters, clusterprofiles], verbs: [get, list, watch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: hosting}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: hosting}
subjects: [{kind: ServiceAccount, name: hosting, namespace: `+place.Namespace+`}]
`)
	f.apply("--namespace="+secrets, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: secrets}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: secrets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: secrets}
subjects: [{kind: ServiceAccount, name: hosting, namespace: `+place.Namespace+`}]
`)
	path, err := place.Plane.ServiceAccountKubeconfig(t.Context(), place.Namespace, "hosting")
	must.Succeed(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	must.Succeed(t, err)
	f.kubectl("", "apply", "--server-side", "-f", filepath.Join("testdata", "crds"))
	planetest.Eventually(t, "the CRDs", func() error { // kubectl fails as long as there are no conditions
		_, err := f.Plane.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/clusters.cluster.x-k8s.io",
			"crd/clusterprofiles.multicluster.x-k8s.io")
		return err
	})
	served, err := labels.Parse("served!=no")
	must.Succeed(t, err)
	p := &Objects{Config: cfg, Namespace: place.Namespace, Selector: served, Secrets: secrets, Log: testlog.New(t), source: s}
	place.Run("the provider", func(ctx context.Context) error { return p.Start(ctx, f) })
	return f
}

func (f *following) kubectl(stdin string, args ...string) {
	f.t.Helper()
	out, err := f.Plane.KubectlInput(f.t.Context(), strings.NewReader(stdin), args...)
	if err != nil {
		f.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (f *following) apply(namespace, manifest string) {
	f.t.Helper()
	f.kubectl(manifest, "apply", "--server-side", "--force-conflicts", namespace, "-f", "-")
}

func (f *following) reaches(want string) {
	f.t.Helper()
	planetest.Eventually(f.t, want, func() error { return wait.If(f.state() == want, f.state()) })
}

// refused waits for the Event of an object.
func (f *following) refused(object, why string) {
	f.t.Helper()
	planetest.Eventually(f.t, object+" to be refused: "+why, func() error {
		list := &eventsv1.EventList{}
		if err := f.Live.List(f.t.Context(), list, client.InNamespace(f.Namespace)); err != nil {
			return err
		}
		var notes []string
		for _, e := range list.Items {
			if e.Regarding.Name == object && e.Reason == "NotServed" {
				notes = append(notes, e.Note)
			}
		}
		return wait.If(strings.Contains(strings.Join(notes, "\n"), why), notes)
	})
}

// user is who the worker of an engaged cluster is there.
func (f *following) user(name string) authenticationv1.UserInfo {
	f.t.Helper()
	f.Host.mu.Lock()
	cfg := rest.CopyConfig(f.engaged[multicluster.ClusterName(name)].cluster.GetConfig())
	f.Host.mu.Unlock()
	c, err := client.New(cfg, client.Options{Scheme: planetest.Scheme(f.t)})
	must.Succeed(f.t, err)
	review := &authenticationv1.SelfSubjectReview{}
	must.Succeed(f.t, c.Create(f.t.Context(), review))
	return review.Status.UserInfo
}

// capiCluster is a Cluster as a user writes it, and Cluster API completes it.
const capiCluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %[1]s, finalizers: [cluster.cluster.x-k8s.io], labels: {agentbox.navix.sh/cluster-id: %[1]s-id}}
spec:
  clusterNetwork: {pods: {cidrBlocks: [192.168.0.0/16]}, services: {cidrBlocks: [10.128.0.0/12]}}
  controlPlaneEndpoint: {host: 172.18.0.3, port: 6443}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: %[1]s-control-plane}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DockerCluster, name: %[1]s}
`

// capiStatus is the status of a Cluster once its control plane accepts requests.
const capiStatus = `
status:
  conditions:
  - {type: Available, status: "False", reason: NotAvailable, message: "* WorkersAvailable: worker machines are missing",
     lastTransitionTime: "2026-01-01T00:00:00Z", observedGeneration: 1}
  - {type: InfrastructureReady, status: "True", reason: Ready, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: ControlPlaneInitialized, status: "True", reason: Initialized, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: ControlPlaneAvailable, status: "True", reason: Available, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
  initialization: {infrastructureProvisioned: true, controlPlaneInitialized: true}
  controlPlane: {desiredReplicas: 1, replicas: 1, readyReplicas: 1, availableReplicas: 1, upToDateReplicas: 1}
  phase: Provisioned
  observedGeneration: 1
`

// capiSecret is the Secret that a control plane provider writes.
func capiSecret(place *planetest.Place, name, kubeconfig string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: place.Namespace, Name: name + "-kubeconfig",
			Labels: map[string]string{"cluster.x-k8s.io/cluster-name": name}},
		Type: "cluster.x-k8s.io/secret", StringData: map[string]string{"value": kubeconfig},
	}
}

// TestI7ClusterAPI: a cluster is served once its control plane accepts requests, as the ServiceAccount of workers, anew with other
// credentials, and until its Cluster is being deleted; others that cannot be used change none of that, nor does damage of its Secret. A
// Cluster that loses the labels is no longer served.
func TestI7ClusterAPI(t *testing.T) {
	place, c := east.Place(t), admin(t)
	f := follow(t, clusterAPI("system:serviceaccount:atoll-system:atoll-worker"), place, place.Namespace)
	namespace := "--namespace=" + place.Namespace
	add := func(name, kubeconfig string) {
		t.Helper()
		f.apply(namespace, fmt.Sprintf(capiCluster, name))
		must.Succeed(t, c.Create(t.Context(), capiSecret(place, name, kubeconfig)))
	}
	ready := func(name string) {
		t.Helper()
		f.kubectl("", "patch", namespace, "cluster.cluster.x-k8s.io", name, "--subresource=status", "--type=merge", "-p", capiStatus)
	}
	kubeconfig, err := os.ReadFile(place.Plane.Kubeconfig())
	must.Succeed(t, err)
	add("good", string(kubeconfig))
	for name, text := range map[string]string{
		"runs":  kubeconfigOf("https://127.0.0.1:1", "exec: {command: sh, interactiveMode: Never, apiVersion: client.authentication.k8s.io/v1}"),
		"reads": kubeconfigOf("https://127.0.0.1:1", "tokenFile: /etc/passwd"),
		"plain": kubeconfigOf("http://user:secret@127.0.0.1:1", "token: a"),
		"bare":  "{",
		"dead":  kubeconfigOf("https://127.0.0.1:1", "token: a"),
	} {
		add(name, text)
		ready(name)
	}
	f.refused("runs", "run programs")
	f.refused("reads", "names a file")
	f.refused("plain", `the server of cluster "c" is not valid`)
	f.refused("bare", "reading key value of Secret bare-kubeconfig")
	f.reaches("dead1true")
	ready("good")
	f.reaches("dead1true good1true")
	first := holder(t, c, "")
	if user := f.user("good"); user.Username != "system:serviceaccount:atoll-system:atoll-worker" ||
		!strings.Contains(strings.Join(user.Groups, " "), "system:serviceaccounts:atoll-system") {
		t.Errorf("the worker is %s with groups %v in its cluster", user.Username, user.Groups)
	}
	kind := clusterAPI("").kind
	if id, err := LabelledID(c, kind, place.Namespace)(t.Context(), "good"); err != nil || id != "good-id" {
		t.Errorf("the cluster id is %q, %v", id, err)
	}

	secret := capiSecret(place, "good", strings.ReplaceAll(string(kubeconfig), ": east", ": renewed"))
	must.Succeed(t, c.Update(t.Context(), secret))
	f.reaches("dead1true good2true")
	second := first
	for second == first || second == "" {
		second = holder(t, c, second)
	}
	secret.StringData = map[string]string{"value": "{"}
	must.Succeed(t, c.Update(t.Context(), secret))
	f.refused("good", "reading key value of Secret good-kubeconfig")
	must.Succeed(t, c.Delete(t.Context(), secret))
	f.kubectl("", "label", namespace, "cluster.cluster.x-k8s.io", "dead", "served=no")
	f.reaches("dead1false good2true")
	f.kubectl("", "delete", namespace, "cluster.cluster.x-k8s.io", "good", "--wait=false") // its finalizer stays
	f.reaches("dead1false good2false")
	if after := holder(t, c, second); after != "" {
		t.Errorf("a cluster that is being deleted is led by %q", after)
	}
}

// profile is a ClusterProfile as a cluster manager writes it.
const profile = `
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ClusterProfile
metadata: {name: %[1]s, labels: {x-k8s.io/cluster-manager: fleet-manager}}
spec: {displayName: "The cluster %[1]s", clusterManager: {name: fleet-manager}}
`

// profileStatus has the providers of a cluster's access.
const profileStatus = `
status:
  conditions:
  - {type: ControlPlaneHealthy, status: "True", reason: ClusterReachable, message: responds, lastTransitionTime: "2026-01-01T00:00:00Z"}
  version: {kubernetes: 1.36.0}
  properties: [{name: clusterset.k8s.io/cluster-id, value: a1b2c3, lastObservedTime: "2026-01-01T00:00:00Z"}]
  accessProviders: [%s]
`

func tokenOf(place *planetest.Place, name, profile, token string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: place.Namespace, Name: name, Labels: map[string]string{"x-k8s.io/cluster-profile": profile}},
		StringData: map[string]string{"token": token},
	}
}

// TestI7ClusterInventory: a cluster is served with the server and CA of its ClusterProfile and the token of a Secret that names it, anew
// when one of them changes, until the ClusterProfile is deleted; others that cannot be used change none of that.
func TestI7ClusterInventory(t *testing.T) {
	place, consumer, c := east.Place(t), east.Place(t), admin(t)
	f := follow(t, clusterInventory(), place, consumer.Namespace)
	namespace := "--namespace=" + place.Namespace
	access := func(name, providers string) {
		t.Helper()
		f.kubectl("", "patch", namespace, "clusterprofile", name, "--subresource=status", "--type=merge", "-p",
			fmt.Sprintf(profileStatus, providers))
	}
	reader := func(more, secret string) string {
		return `{name: secretreader, cluster: {server: "https://127.0.0.1:1", ` + more +
			`extensions: [{name: client.authentication.k8s.io/exec, extension: {clusterName: ` + secret + `}}]}}`
	}
	program := `{name: gke-fleet, cluster: {server: "https://127.0.0.1:1"}}`
	profiles := map[string]string{
		"programs": program,
		"insecure": reader("insecure-skip-tls-verify: true, ", "insecure"),
		"file":     reader("certificate-authority: /etc/passwd, ", "file"),
		"stolen":   reader("", "dead"),
		"waiting":  "",
		"dead":     program + ", " + reader("", "dead"),
	}
	for name := range profiles { // all of them first: nothing tells of a Secret that was missing and is of another one
		must.Succeed(t, c.Create(t.Context(), tokenOf(consumer, name, name, "a-token")))
	}
	for name, providers := range profiles {
		f.apply(namespace, fmt.Sprintf(profile, name))
		access(name, providers)
	}
	f.refused("programs", "run programs here")
	f.refused("insecure", "insecure-skip-tls-verify")
	f.refused("file", "names a file")
	f.refused("stolen", "want the label x-k8s.io/cluster-profile=stolen")
	f.reaches("dead1true")

	cfg := workerConfig(t)
	f.apply(namespace, fmt.Sprintf(profile, "spoke"))
	access("spoke", fmt.Sprintf(`{name: secretreader, cluster: {server: %q, certificate-authority-data: %s}}`, cfg.Host,
		base64.StdEncoding.EncodeToString(cfg.CAData)))
	secret := tokenOf(consumer, "spoke", "spoke", cfg.BearerToken+"\n")
	must.Succeed(t, c.Create(t.Context(), secret))
	f.reaches("dead1true spoke1true")
	first := holder(t, c, "")
	if user := f.user("spoke"); user.Username != "system:serviceaccount:atoll-system:atoll-worker" {
		t.Errorf("the worker is %s in its cluster", user.Username)
	}
	if id, err := LabelledID(c, clusterInventory().kind, place.Namespace)(t.Context(), "spoke"); err != nil || id != "spoke" {
		t.Errorf("the cluster id is %q, %v", id, err)
	}

	secret.StringData = map[string]string{"token": workerConfig(t).BearerToken}
	must.Succeed(t, c.Update(t.Context(), secret))
	f.reaches("dead1true spoke2true")
	second := first
	for second == first || second == "" {
		second = holder(t, c, second)
	}
	access("spoke", program) // damage
	f.refused("spoke", "run programs here")
	access("dead", reader("tls-server-name: other, ", "dead"))
	f.reaches("dead2true spoke2true")
	f.kubectl("", "delete", namespace, "clusterprofile", "spoke")
	f.reaches("dead2true spoke2false")
	if after := holder(t, c, second); after != "" {
		t.Errorf("a cluster without a ClusterProfile is led by %q", after)
	}
}
