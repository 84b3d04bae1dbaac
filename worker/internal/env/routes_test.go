// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/pool"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const templateManifest = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxTemplate
metadata:
  name: TEMPLATE
  labels: {team: tools, app.kubernetes.io/instance: not-for-pools}
spec:
  version: v1.0.0
  idleImage: test.local/idle:1
  runtimes:
  - name: e2b
    port: 49983
    config: {b: 1,   a: [2]}
  template:
    spec:
      aFieldOfTomorrow: {kept: true}
      containers:
      - {name: main, image: "test.local/default:1", resources: {requests: {cpu: 1000m}}, newProbe: 5}
      - {name: side, image: "test.local/side:1"}
`

// shop has a member whose replicas are the autoscaler's and are stated in the manifest as well, one whose replicas are
// set by hand, and members in another cluster.
const shop = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata:
  name: shop
  namespace: NS
spec:
  templateRef: {name: TEMPLATE}
  mode: WarmPool
  overrides: {defaultIdleTimeout: 5m}
  clusters:
  - clusterID: west
    members:
    - name: shop-west
      config: {scalingGroup: auto, inlineResources: {requests: {cpu: 100m}}}
  - clusterID: east
    members:
    - name: shop-auto
      spec: {replicas: 2}
      config: {scalingGroup: auto, maxReplicas: 90, inlineResources: {requests: {cpu: 100m}}}
    - name: shop-hand
      config: {scalingGroup: "", minReplicas: 1, labels: {tier: gold}}
  autoscaling:
    groups:
    - {name: auto, enabled: true, scaleUpPolicy: {idleThresholdSeconds: 0}}
`

// state is what a re-apply must not change.
type state struct {
	Frozen, PoolSpec, PoolMetadata map[string]string
	PoolGeneration                 map[string]int64
	PoolUID                        map[string]types.UID
	Pods                           []string
	Foreign                        string
}

var shopMembers = []string{"shop-auto", "shop-hand"}

func (w *world) state() state {
	w.t.Helper()
	s := state{
		Frozen: map[string]string{}, PoolSpec: map[string]string{}, PoolMetadata: map[string]string{},
		PoolGeneration: map[string]int64{}, PoolUID: map[string]types.UID{},
	}
	for _, name := range shopMembers {
		pool := w.doc("SandboxPool", name)
		s.Frozen[name] = w.frozen("shop", name)
		s.PoolSpec[name] = toJSON(pool.Object["spec"])
		s.PoolMetadata[name] = toJSON(map[string]any{"labels": pool.GetLabels(), "annotations": pool.GetAnnotations()})
		// The generation counts changes of spec: equal before and after means that there was none in between.
		s.PoolGeneration[name], s.PoolUID[name] = pool.GetGeneration(), pool.GetUID()
	}
	pods := &corev1.PodList{}
	w.Must(w.Live.List(w.ctx, pods, client.InNamespace(w.Namespace)))
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			s.Pods = append(s.Pods, fmt.Sprintf("%s %s", pods.Items[i].Name, pods.Items[i].UID))
		}
	}
	clusters, _, _ := unstructured.NestedSlice(w.doc("SandboxEnv", "shop").Object, "status", "clusters")
	for _, cluster := range clusters {
		if segment, _ := cluster.(map[string]any); segment["clusterID"] == "west" {
			s.Foreign = toJSON(segment)
		}
	}
	return s
}

// history is the shop's Env at moments that an old object may be from.
type history struct {
	created, ready *unstructured.Unstructured
}

// open creates the shop in an idle world: created by create, scaled since by the autoscaler and by hand, and with another
// cluster's segment in its status.
func (w *world) open(create func(manifest string)) history {
	w.t.Helper()
	w.apply(templateManifest)
	create(shop)
	h := history{created: w.doc("SandboxEnv", "shop")} // as it is before the Reconciler has touched it
	w.start()
	w.awaitReady("shop")
	h.ready = w.doc("SandboxEnv", "shop")
	w.Must(w.patchEnv("shop", controllers.FieldManager, types.JSONPatchType,
		`[{"op":"test","path":"/spec/clusters/1/members/0/name","value":"shop-auto"},
		  {"op":"replace","path":"/spec/clusters/1/members/0/spec/replicas","value":5}]`))
	w.Must(w.patchEnv("shop", "by-hand", types.JSONPatchType,
		`[{"op":"test","path":"/spec/clusters/1/members/1/name","value":"shop-hand"},
		  {"op":"add","path":"/spec/clusters/1/members/1/spec","value":{"replicas":3}}]`))
	w.applyForeign("shop", "west")
	for name, replicas := range map[string]int32{"shop-auto": 5, "shop-hand": 3} {
		w.awaitReplicas(name, replicas)
	}
	w.awaitReady("shop")
	return h
}

// applyForeign writes another cluster's status segment, as the sync path does.
func (w *world) applyForeign(env, clusterID string) {
	w.t.Helper()
	obj := w.Env(env)
	body := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "SandboxEnv",
		"metadata": map[string]any{"name": env, "namespace": w.Namespace, "uid": string(obj.UID)},
		"status": map[string]any{"clusters": []any{map[string]any{
			"clusterID": clusterID, "isLocal": false, "lastSnapshotTime": "2026-01-01T00:00:00Z",
			"observedMembers": []any{map[string]any{
				"name": "shop-" + clusterID, "state": "Active", "idleCount": int64(7), "runningCount": int64(1), "desiredReplicas": int64(8),
			}},
		}}},
	}
	w.Must(w.Live.Status().Apply(w.ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: body}),
		client.FieldOwner("atoll-sync"), client.ForceOwnership))
}

// noRecord is a pool's Recorder for tests in which no sandbox may end.
type noRecord struct{ t *testing.T }

func (noRecord) Released(types.UID) *sandbox.Termination { return nil }

func (r noRecord) Ended(_ context.Context, record *sandboxv1.Sandbox, _ sandbox.Claim) error {
	r.t.Errorf("sandbox %s has ended", record.Id)
	return nil
}

// startPools runs the pool reconciler, so that there are Pods to lose.
func (w *world) startPools() {
	t := w.t
	t.Helper()
	cfg := w.Plane.Config()
	cfg.QPS, cfg.Burst = -1, -1
	w.run(cfg, func(ctx context.Context, mgr ctrl.Manager) error {
		r, err := pool.New(pool.Options{
			Client: mgr.GetClient(), Recorder: noRecord{t}, Events: mgr.GetEventRecorder("pool"),
			ClusterID: local, Registry: prometheus.NewRegistry(),
		})
		if err != nil {
			return err
		}
		if err := sandboxcache.AddIndexes(ctx, mgr.GetFieldIndexer(), &corev1.Pod{}); err != nil {
			return err
		}
		return r.SetupWithManager(ctx, mgr)
	})
}

// awaitPods waits for as many Pods as the pools have replicas.
func (w *world) awaitPods(want int) {
	w.t.Helper()
	w.Eventually(fmt.Sprintf("%d Pods", want), func() error {
		pods := &corev1.PodList{}
		w.Must(w.Live.List(w.ctx, pods, client.InNamespace(w.Namespace)))
		return wait.If(len(pods.Items) == want, len(pods.Items))
	})
}

// TestI3ReApplyLosesNothing puts the manifest back by every common route, with and without a change in it.
func TestI3ReApplyLosesNothing(t *testing.T) {
	changed := strings.Replace(shop, "maxReplicas: 90", "maxReplicas: 80", 1)
	if changed == shop {
		t.Fatal("the manifest did not change")
	}
	clientSide := func(w *world) func(string) { return func(m string) { w.apply(m) } }
	serverSide := func(args ...string) func(w *world) func(string) {
		return func(w *world) func(string) {
			return func(m string) { w.apply(m, append([]string{"--server-side"}, args...)...) }
		}
	}
	routes := []struct {
		name   string
		create func(w *world) func(manifest string)
		again  func(w *world, h history)
	}{
		{"client-side apply", clientSide, func(w *world, _ history) { w.apply(shop) }},
		{"client-side apply of a change", clientSide, func(w *world, _ history) { w.apply(changed) }},
		{"server-side apply of a change that conflicts in nothing", serverSide(), func(w *world, _ history) {
			w.apply(strings.Replace(changed, "      spec: {replicas: 2}\n", "      spec: {replicas: 5}\n", 1), "--server-side")
		}},
		{"server-side apply, forced", serverSide(), func(w *world, _ history) {
			w.apply(changed, "--server-side", "--force-conflicts")
		}},
		{"server-side apply over client-side apply", clientSide, func(w *world, _ history) {
			w.apply(changed, "--server-side", "--force-conflicts")
		}},
		{"edit", clientSide, func(w *world, _ history) {
			w.t.Setenv("KUBE_EDITOR", `sed -i "s/maxReplicas: 90/maxReplicas: 80/"`)
			w.kubectl("", "edit", "sandboxenv", "shop")
		}},
		{"edit that takes the snapshots out", clientSide, func(w *world, _ history) {
			w.Eventually("the edit", func() error { // the worker may write in between
				edited := w.doc("SandboxEnv", "shop")
				for _, name := range shopMembers {
					at := envDoc{Unstructured: edited, clusterID: local}.member(name)
					unstructured.RemoveNestedField(at.doc, "metadata")
					unstructured.RemoveNestedField(at.doc, "spec")
					setMember(edited, at)
				}
				return w.Live.Update(w.ctx, edited, client.FieldOwner("kubectl-edit"))
			})
		}},
		{"replace with the manifest", clientSide, func(w *world, _ history) {
			w.kubectl(changed, "replace", "-f", "-")
		}},
		{"replace with the object as it was created", clientSide, func(w *world, h history) {
			h.created.SetResourceVersion("")
			w.kubectl(toJSON(h.created.Object), "replace", "-f", "-")
		}},
		{"replace with the object as it was before the autoscaler's write", clientSide, func(w *world, h history) {
			h.ready.SetResourceVersion("")
			// The user's number is the same as now; the autoscaler's is old.
			setReplicas(h.ready, "shop-hand", 3)
			w.kubectl(toJSON(h.ready.Object), "replace", "-f", "-")
		}},
		{"Helm upgrade: three-way merge patch", clientSide, func(w *world, _ history) {
			w.helmUpgrade(shop, changed)
		}},
		{"Helm upgrade --force: replace at the live resourceVersion", clientSide, func(w *world, _ history) {
			w.replaceAtLiveVersion(changed, "helm")
		}},
		{"Argo CD: client-side apply", clientSide, func(w *world, _ history) {
			w.apply(changed, "--field-manager=argocd-controller")
		}},
		{"Argo CD: ServerSideApply=true", serverSide("--field-manager=argocd-controller"), func(w *world, _ history) {
			w.apply(changed, "--server-side", "--field-manager=argocd-controller", "--force-conflicts")
		}},
		{"Argo CD: Replace=true", clientSide, func(w *world, _ history) {
			w.replaceAtLiveVersion(changed, "argocd-controller")
		}},
	}
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			if route.name != "edit" { // which sets a variable of the environment
				t.Parallel()
			}
			w := newIdleWorld(t)
			w.startPools()
			h := w.open(route.create(w))
			w.awaitPods(8)
			before := w.state()

			route.again(w, h)
			w.awaitReady("shop")
			w.Eventually("the snapshots to be as before", func() error {
				diff := cmp.Diff(before.Frozen, w.state().Frozen)
				return wait.If(diff == "", diff)
			})
			w.awaitReady("shop")
			if diff := cmp.Diff(before, w.state()); diff != "" {
				t.Errorf("the re-apply changed (-before +after):\n%s", diff)
			}
		})
	}
}

// setMember puts back a member's document that was copied before.
func setMember(env *unstructured.Unstructured, at *memberAt) {
	clusters, _, _ := unstructured.NestedSlice(env.Object, "spec", "clusters")
	for _, cluster := range clusters {
		members, _ := cluster.(map[string]any)["members"].([]any)
		for i := range members {
			if members[i].(map[string]any)["name"] == at.doc["name"] {
				members[i] = at.doc
			}
		}
	}
	_ = unstructured.SetNestedSlice(env.Object, clusters, "spec", "clusters")
}

func setReplicas(env *unstructured.Unstructured, member string, replicas int64) {
	at := envDoc{Unstructured: env, clusterID: local}.member(member)
	at.spec()["replicas"] = replicas
	setMember(env, at)
}

// helmUpgrade sends what Helm 3 sends for a custom resource: the JSON merge patch from the old manifest to the new.
func (w *world) helmUpgrade(before, after string) {
	w.t.Helper()
	old, err := yaml.YAMLToJSON([]byte(w.fill(before)))
	w.Must(err)
	next, err := yaml.YAMLToJSON([]byte(w.fill(after)))
	w.Must(err)
	body, err := jsonpatch.CreateMergePatch(old, next)
	w.Must(err)
	w.Must(w.patchEnv("shop", "helm", types.MergePatchType, string(body)))
}

// replaceAtLiveVersion is an update with a manifest that has the resourceVersion of the live object. It is retried if a status
// was written in between.
func (w *world) replaceAtLiveVersion(manifest, manager string) {
	w.t.Helper()
	content, err := yaml.YAMLToJSON([]byte(w.fill(manifest)))
	w.Must(err)
	obj := &unstructured.Unstructured{}
	w.Must(json.Unmarshal(content, &obj.Object))
	w.Must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		obj.SetResourceVersion(w.doc("SandboxEnv", "shop").GetResourceVersion())
		return w.Live.Update(w.ctx, obj.DeepCopy(), client.FieldOwner(manager))
	}))
}
