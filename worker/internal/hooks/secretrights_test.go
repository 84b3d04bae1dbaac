// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/wait"
)

var east = planetest.New("hooks", plane.Options{}, nil)

const withToken = `[{"http":{"port":80,
	"headers":{"Authorization":{"valueFrom":{"secretKeyRef":{"name":"creds","key":"token"}}}}},"retries":0}]`

// TestSecretsOfAnAPIServer: with the rights of the chart and no others a hook gets the value that a Secret has at that moment, if
// the Secret is for hooks of its team; in a namespace that the chart does not list it gets none.
func TestSecretsOfAnAPIServer(t *testing.T) {
	listed, other := east.Place(t), east.Place(t)
	w := newHookWorker(t, listed)
	label := map[string]string{v1alpha1.HookSecretLabelKey: "true"}
	teams := func(list string) map[string]string {
		return map[string]string{v1alpha1.HookSecretTeamsAnnotationKey: list}
	}
	const none = `there is no Secret "creds" with the label agentbox.navix.sh/hook-secret=true for hooks of this team`
	w.want(listed, nil, none)
	for name, c := range map[string]struct {
		place               *planetest.Place
		labels, annotations map[string]string
		want                string // of the message; empty: the sandbox gets the value
	}{
		"for hooks":                         {listed, label, nil, ""},
		"for a listed team":                 {listed, label, teams("blue, red"), ""},
		"without the label":                 {listed, nil, nil, none},
		"not for hooks":                     {listed, map[string]string{v1alpha1.HookSecretLabelKey: "false"}, nil, none},
		"for another team":                  {listed, label, teams("blue"), none},
		"in a namespace that is not listed": {other, label, nil, "may not read Secrets in namespace " + other.Namespace},
	} {
		t.Run(name, func(t *testing.T) {
			each := w.of(t)
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.place.Namespace, Name: "creds", Labels: c.labels, Annotations: c.annotations},
				Data:       map[string][]byte{"token": []byte("first")},
			}
			c.place.Must(c.place.Live.Create(t.Context(), secret))
			each.want(c.place, secret, c.want)
			secret.Data["token"] = []byte("second")
			c.place.Must(c.place.Live.Update(t.Context(), secret))
			each.want(c.place, secret, c.want)
			c.place.Must(c.place.Live.Delete(t.Context(), secret))
		})
	}
}

// hookWorker runs hooks with a worker's rights. Requests to Pods reach the test.
type hookWorker struct {
	t       *testing.T
	runner  *Runner
	mu      *sync.Mutex
	headers *[]string
}

func (w hookWorker) of(t *testing.T) hookWorker {
	w.t = t
	return w
}

// newHookWorker has the rights that the chart renders for one namespace with hookSecrets.
func newHookWorker(t *testing.T, listed *planetest.Place) hookWorker {
	t.Helper()
	helm, err := harness.New(t.Context(), t.TempDir())
	must.Succeed(t, err)
	objects, err := helm.Template(t.Context(), harness.Release{Name: "atoll-worker", Namespace: "atoll-system", Chart: helm.Chart("worker"),
		Values: "clusterID: east\nhookSecrets: true\nnamespaces: [" + listed.Namespace + "]"})
	must.Succeed(t, err)
	manifest, err := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return !slices.Contains([]string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}, o.GetKind())
	}).Manifest()
	must.Succeed(t, err)
	_, err = listed.Plane.Kubectl(t.Context(), "create", "namespace", "atoll-system")
	must.Succeed(t, err)
	_, err = listed.Plane.KubectlInput(t.Context(), strings.NewReader(manifest), "apply", "--server-side", "-f", "-")
	must.Succeed(t, err)
	path, err := listed.Plane.ServiceAccountKubeconfig(t.Context(), "atoll-system", "atoll-worker")
	must.Succeed(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	must.Succeed(t, err)
	cluster, err := NewCluster(cfg)
	must.Succeed(t, err)
	admin, err := NewCluster(listed.Plane.Config()) // the worker has no right to the Pod in the other namespace either
	must.Succeed(t, err)

	w := hookWorker{t: t, mu: &sync.Mutex{}, headers: &[]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		*w.headers = append(*w.headers, r.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)
	w.runner, err = New(Options{
		Pods: admin, Exec: cluster, Secrets: cluster, Log: logr.Discard(),
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, server.Listener.Addr().String())
		},
	})
	must.Succeed(t, err)
	listed.Run("hooks", w.runner.Start)
	return w
}

// want runs the hooks of a new sandbox. It must get the value of the Secret, or fail with a message.
func (w hookWorker) want(p *planetest.Place, secret *corev1.Secret, message string) {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, GenerateName: "sandbox-",
			Labels: map[string]string{
				v1alpha1.SandboxPoolLabelKey: "p", v1alpha1.SandboxPhaseLabelKey: "starting", v1alpha1.SandboxIDLabelKey: "s1",
			},
			Annotations: map[string]string{v1alpha1.SandboxPostStartHooksAnnotationKey: withToken, v1alpha1.LabelTeam: "red"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "test.local/app:1"}}},
	}
	p.Must(p.Live.Create(w.t.Context(), pod))
	p.Eventually("the Pod's address", func() error {
		if err := p.Live.Get(w.t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		return wait.If(pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning, pod.Status)
	})
	job, ok := JobOf(pod, &v1alpha1.SandboxPoolSpec{})
	if !ok {
		w.t.Fatal("the Pod has no hooks to run")
	}
	w.mu.Lock()
	*w.headers = nil
	w.mu.Unlock()
	w.runner.Begin(job)
	var got State
	p.Eventually("the end of the hooks", func() error {
		got = w.runner.Follow(job.Pool, []Job{job})[pod.UID]
		return wait.If(got.Status != Due && got.Status != Working, got)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case message != "" && (got.Status != Unresolved || !strings.Contains(got.Message, message) || len(*w.headers) > 0):
		w.t.Errorf("the hooks are %v, and the sandbox got %q; want %q", got, *w.headers, message)
	case message == "" && (got.Status != Done || !slices.Equal(*w.headers, []string{string(secret.Data["token"])})):
		w.t.Errorf("the hooks are %v, and the sandbox got %q; want %q", got, *w.headers, secret.Data["token"])
	}
}
