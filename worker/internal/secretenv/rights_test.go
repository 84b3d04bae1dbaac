// SPDX-License-Identifier: Apache-2.0

package secretenv_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/secretenv"
)

var east = planetest.New("secretenv", plane.Options{}, nil)

func TestMain(m *testing.M) { east.Main(m) }

// TestSecretsOfAnAPIServer: with the rights that the chart renders for sandboxSecrets the worker reads the Secrets that these name, and no
// others, whatever its own rules say.
func TestSecretsOfAnAPIServer(t *testing.T) {
	pattern, exact, other := east.Place(t), east.Place(t), east.Place(t)
	allowed := []string{pattern.Namespace + "/llm-*", exact.Namespace + "/token"}
	helm, err := harness.New(t.Context(), t.TempDir())
	must.Succeed(t, err)
	objects, err := helm.Template(t.Context(), harness.Release{Name: "atoll-worker", Namespace: "atoll-system", Chart: helm.Chart("worker"),
		Values: "clusterID: east\nsandboxSecrets: [" + strings.Join(allowed, ", ") + "]"})
	must.Succeed(t, err)
	manifest, err := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return !slices.Contains([]string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}, o.GetKind())
	}).Manifest()
	must.Succeed(t, err)
	_, err = east.Up(t).Kubectl(t.Context(), "create", "namespace", "atoll-system")
	must.Succeed(t, err)
	_, err = east.Up(t).KubectlInput(t.Context(), strings.NewReader(manifest), "apply", "--server-side", "-f", "-")
	must.Succeed(t, err)
	path, err := east.Up(t).ServiceAccountKubeconfig(t.Context(), "atoll-system", "atoll-worker")
	must.Succeed(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	must.Succeed(t, err)
	cluster, err := hooks.NewCluster(cfg)
	must.Succeed(t, err)
	rules, err := secretenv.ParseRules(append(allowed, exact.Namespace+"/wider", other.Namespace+"/*"))
	must.Succeed(t, err)
	source := secretenv.New(rules, cluster)
	for _, c := range []struct {
		place *planetest.Place
		name  string
		fault string // empty: the value is read
	}{
		{pattern, "llm-openai", ""}, {pattern, "token", "is not a Secret that sandboxes"},
		{exact, "token", ""}, {exact, "wider", "may not read"}, {other, "token", "may not read"},
	} {
		c.place.Must(c.place.Live.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.place.Namespace, Name: c.name}, Data: map[string][]byte{"key": []byte("value")},
		}))
		got, err := source.Read(t.Context(), c.place.Namespace, "red", []*sandboxv1.SandboxSecret{{Env: "A", Name: c.name, Key: "key"}})
		if c.fault == "" && (err != nil || got["A"] != "value") || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s/%s: %v, %v, want %q", c.place.Namespace, c.name, got, err, c.fault)
		}
	}
}
