// SPDX-License-Identifier: Apache-2.0

package env

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/replicas"
)

// settled states what the schema would add to its lists, and leaves out the replicas that the autoscaler sets.
const settled = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: shop, namespace: NS}
spec:
  templateRef: {name: TEMPLATE}
  mode: WarmPool
  clusters:
  - clusterID: east
    members:
    - {name: shop-auto, config: {scalingGroup: auto, minReplicas: 2}}
    - {name: shop-hand, spec: {replicas: 3}, config: {scalingGroup: "", labels: {tier: gold}}}
  - clusterID: west
    members:
    - {name: shop-west, spec: {replicas: 1}, config: {scalingGroup: ""}}
  autoscaling:
    groups:
    - name: auto
      enabled: true
      minReplicas: 0
      scaleUpPolicy:
        {mode: Default, cooldownSeconds: 30, idleThresholdSeconds: 30, idleZeroQuietWindowSeconds: 300, saturationCooldownSeconds: 60}
      scaleDownPolicy: {idleTimeoutSeconds: 300, stabilizationSeconds: 60, protectionWindowSeconds: 10}
`

// terse leaves to the schema what it adds, so kubectl sends a patch each time; it changes nothing.
var terse = regexp.MustCompile(`scalingGroup: "", |, minReplicas: 0|(?m)^ +(minReplicas|scale.+Policy): .*\n`).ReplaceAllString(settled, "")

// moment is what a re-apply of an unchanged manifest must leave as it is.
type moment struct {
	Version    string
	Generation int64
	Events     int
	Pools      map[string]string
}

func (w *world) moment(pools ...string) moment {
	w.t.Helper()
	env, events := w.doc("SandboxEnv", "shop"), &corev1.EventList{}
	w.Must(w.Live.List(w.ctx, events, client.InNamespace(w.Namespace)))
	m := moment{Version: env.GetResourceVersion(), Generation: env.GetGeneration(), Pools: map[string]string{}}
	for i := range events.Items {
		m.Events += max(1, int(events.Items[i].Count))
	}
	for _, name := range pools {
		m.Pools[name] = w.doc("SandboxPool", name).GetResourceVersion()
	}
	return m
}

// An unchanged manifest changes nothing, by any route, and every tool that compares says so: kubectl apply and diff, and the dry
// runs of server-side apply by which Argo CD and Flux compare.
func TestAnUnchangedManifestSettles(t *testing.T) {
	const unchanged, applied = "sandboxenv.agents.navix.sh/shop unchanged", "serverside-applied"
	for name, route := range map[string]struct {
		manifest string
		says     string
		apply    []string
	}{
		"client-side":                 {settled, unchanged, nil},
		"client-side, Argo CD":        {settled, unchanged, []string{"--field-manager=argocd-controller"}},
		"client-side, no defaults":    {terse, "sandboxenv.agents.navix.sh/shop configured", nil},
		"server-side":                 {settled, applied, []string{"--server-side"}},
		"server-side, no defaults":    {terse, applied, []string{"--server-side"}},
		"server-side, Argo CD":        {settled, applied, []string{"--server-side", "--field-manager=argocd-controller", "--force-conflicts"}},
		"server-side, forced by Flux": {terse, applied, []string{"--server-side", "--field-manager=kustomize-controller", "--force-conflicts"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.apply(templateManifest)
			w.apply(route.manifest, route.apply...)
			w.awaitReady("shop")
			w.settles(route.manifest, route.says, route.apply...)
			// What the autoscaler sets in between is no difference either.
			env := w.Env("shop")
			cached := &v1alpha1.SandboxEnv{}
			w.Must(w.reconciler.client.Get(w.ctx, client.ObjectKeyFromObject(env), cached))
			_, err := replicas.Set(w.ctx, w.Live, cached, local, "shop-auto", 7)
			w.Must(err)
			w.awaitReplicas("shop-auto", 7)
			w.awaitReady("shop")
			w.settles(route.manifest, route.says, route.apply...)
			if got := w.Pool("shop-auto").Spec.Replicas; got != 7 {
				t.Errorf("the re-apply left %d replicas", got)
			}
		})
	}
}

// settles applies the manifest again, and compares, by one route.
func (w *world) settles(manifest, says string, args ...string) {
	w.t.Helper()
	w.awaitRest()
	before := w.moment("shop-auto", "shop-hand")
	for range 2 {
		if out := w.kubectl(manifest, append([]string{"apply", "-f", "-"}, args...)...); !strings.Contains(out, says) {
			w.t.Errorf("kubectl apply says %q, want %q", out, says)
		}
	}
	w.kubectl(manifest, append([]string{"diff", "-f", "-"}, args...)...) // fails if there is a difference
	ssa := []string{"apply", "-f", "-", "--server-side", "--force-conflicts", "--dry-run=server", "-o", "json"}
	if len(args) > 0 && args[0] == "--server-side" {
		ssa = append(ssa, args[1:]...)
	} else {
		ssa = append(ssa, "--field-manager=argocd-controller")
	}
	would, live := &unstructured.Unstructured{}, w.doc("SandboxEnv", "shop")
	w.Must(json.Unmarshal([]byte(w.kubectl(manifest, ssa...)), &would.Object))
	for _, doc := range []*unstructured.Unstructured{would, live} {
		doc.SetManagedFields(nil)
		doc.SetResourceVersion("")
	}
	if diff := cmp.Diff(toJSON(live.Object), toJSON(would.Object)); diff != "" {
		w.t.Errorf("a dry run of server-side apply (-live +would):\n%s", diff)
	}
	w.awaitRest()
	if diff := cmp.Diff(before, w.moment("shop-auto", "shop-hand")); diff != "" {
		w.t.Errorf("the re-apply changed (-before +after):\n%s", diff)
	}
}

// The README's Env is unchanged when it is applied again.
func TestTheREADMEsEnvSettles(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "## An Env")
	_, section, _ = strings.Cut(section, "```yaml\n")
	manifest, _, ok := strings.Cut(section, "```")
	if !ok {
		t.Fatal("the README has no Env")
	}
	manifest = strings.NewReplacer("{name: python}", "{name: TEMPLATE}", "namespace: default", "namespace: NS").Replace(manifest)
	w := newWorld(t)
	w.apply(manifest)
	w.awaitReady("python")
	out := w.kubectl(manifest, "apply", "-f", "-")
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if !strings.HasSuffix(line, " unchanged") {
			t.Errorf("applied again: %s", line)
		}
	}
	w.kubectl(manifest, "diff", "-f", "-")
}

// An Env that an earlier release wrote has its snapshots in its spec. They are kept in the status as well, and a manifest that is
// applied again takes only those in the spec away.
func TestSnapshotsOfAnEarlierRelease(t *testing.T) {
	w := newIdleWorld(t)
	w.apply(templateManifest)
	w.apply(settled)
	w.start()
	w.awaitReady("shop")
	frozen := map[string]string{}
	for _, name := range shopMembers {
		frozen[name] = w.frozen("shop", name)
	}
	w.awaitRest()
	w.stop()
	// As an earlier release leaves it.
	doc := w.doc("SandboxEnv", "shop")
	for i, name := range shopMembers {
		at := envDoc{Unstructured: doc, clusterID: local}.member(name)
		w.Must(w.patchEnv("shop", controllers.FieldManager, types.JSONPatchType, fmt.Sprintf(
			`[{"op":"test","path":"/spec/clusters/0/members/%d/name","value":%q},
			  {"op":"add","path":"/spec/clusters/0/members/%d/metadata","value":%s},
			  {"op":"add","path":"/spec/clusters/0/members/%d/spec","value":%s}]`,
			i, name, i, toJSON(at.doc["metadata"]), i, toJSON(at.doc["spec"]))))
	}
	w.loseSnapshots("shop")
	before := w.moment(shopMembers...)
	w.start()
	w.Eventually("the snapshots in the status", func() error {
		got := len(w.Env("shop").Status.Snapshots)
		return wait.If(got == len(shopMembers), got)
	})
	w.awaitReady("shop")
	w.awaitRest()
	after := w.moment(shopMembers...)
	after.Version = before.Version // the status was written
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the upgrade changed (-before +after):\n%s", diff)
	}
	w.apply(settled)
	w.awaitReady("shop")
	w.settles(settled, "sandboxenv.agents.navix.sh/shop unchanged")
	for name, want := range frozen {
		if got := w.frozen("shop", name); got != want {
			t.Errorf("the snapshot of %s is\n%s, was\n%s", name, got, want)
		}
	}
}
