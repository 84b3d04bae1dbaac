// SPDX-License-Identifier: Apache-2.0

package env

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/sandboxcache"
	"navix.sh/atoll/worker/internal/snapshot"
)

// TestI3OnlyTheLocalSegmentIsWritten lets the Reconciler do all that it does to an Env with another cluster's segments, and reads
// from managedFields what it has written.
func TestI3OnlyTheLocalSegmentIsWritten(t *testing.T) {
	w := newIdleWorld(t)
	w.open(func(manifest string) { w.apply(manifest) })
	w.apply(shop) // takes snapshots back
	w.awaitReady("shop")
	w.patchPool("shop-hand", `{"spec":{"replicas":9}}`)
	w.awaitEvent("shop", v1alpha1.ReasonPoolDrifted)
	w.Must(w.patchEnv("shop", "by-hand", types.JSONPatchType,
		`[{"op":"replace","path":"/spec/clusters/1/members/0/spec/replicas","value":1}]`))
	w.awaitEvent("shop", reasonReplicasOfOther)
	w.applyForeign("shop", "west")
	w.awaitReady("shop")

	if err := w.Live.Get(w.ctx, w.Key("shop-west"), &v1alpha1.SandboxPool{}); !apierrors.IsNotFound(err) {
		t.Errorf("another cluster's member was materialised: %v", err)
	}
	wrote := false
	for _, entry := range w.Env("shop").ManagedFields {
		if entry.Manager != controllers.FieldManager {
			continue
		}
		wrote = true
		if fields := entry.FieldsV1.GetRawString(); strings.Contains(fields, "west") {
			t.Errorf("%s owns fields of another cluster: %s", controllers.FieldManager, fields)
		}
	}
	if !wrote {
		t.Error("nothing was written at all")
	}
	doc := w.doc("SandboxEnv", "shop")
	west := envDoc{Unstructured: doc, clusterID: "west"}.member("shop-west")
	if west == nil || west.doc["spec"] != nil || west.doc["metadata"] != nil {
		t.Errorf("the other cluster's member is %s", toJSON(west.doc))
	}
}

// bare is a Reconciler without cache, for what happens between a read and a write.
func (w *world) bare() *Reconciler {
	metrics, err := newMetrics(prometheus.NewRegistry())
	w.Must(err)
	return &Reconciler{
		clusterID: local, client: w.Live, live: w.Live, recorder: events.NewFakeRecorder(100),
		clock: clock.RealClock{}, metrics: metrics, creations: newCreations(clock.RealClock{}),
	}
}

// TestConflictingWrites has another writer change an Env between our read and our write.
func TestConflictingWrites(t *testing.T) {
	members := kiosk(`{name: a}`, `{name: b}`)
	replace := func(manifest string) func(w *world) {
		return func(w *world) { w.kubectl(manifest, "replace", "-f", "-") }
	}
	for name, other := range map[string]struct {
		write func(w *world)
		// placed says that the tests at the member's place must fail even without those of the whole object.
		placed bool
	}{
		"status":            {write: func(w *world) { w.applyForeign("kiosk", "west") }},
		"an annotation":     {write: func(w *world) { w.kubectl("", "annotate", "sandboxenv", "kiosk", "x=y") }},
		"members reordered": {replace(kiosk(`{name: b}`, `{name: a}`)), true},
		"member removed":    {replace(kiosk(`{name: b}`)), true},
		"clusters reordered": {replace(strings.Replace(members, "  - clusterID: east",
			"  - clusterID: west\n    members: [{name: a}]\n  - clusterID: east", 1)), true},
		"segment renamed": {replace(strings.Replace(members, "east", "west", 1)), true},
		"segment removed": {replace(strings.Split(members, "  clusters:")[0]), true},
		"Env made anew": {write: func(w *world) {
			w.Must(w.Live.Delete(w.ctx, w.Env("kiosk")))
			w.apply(members)
		}},
		"Env deleted": {write: func(w *world) { w.Must(w.Live.Delete(w.ctx, w.Env("kiosk"))) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newIdleWorld(t)
			w.apply(members)
			r := w.bare()
			o := &observation{
				clusterID: local, pools: map[string]*v1alpha1.SandboxPool{},
				Source: snapshot.Source{Env: w.Env("kiosk"), Template: templateOf(t, map[string]any{"name": "x", "image": "y"})},
			}
			read, err := r.readLive(w.ctx, o)
			w.Must(err)
			p := decide(o)
			other.write(w)

			a := &actor{Reconciler: r, o: o, read: read}
			if err := a.writeEdits(w.ctx, editsOf(&p)); !errors.Is(err, errStale) {
				t.Errorf("the write answered %v", err)
			}
			if other.placed {
				ops, err := read.edit(&p.members[0], p.members[0].snapshot)
				w.Must(err)
				body, err := json.Marshal(ops)
				w.Must(err)
				err = w.Live.Patch(w.ctx, w.doc("SandboxEnv", "kiosk"), client.RawPatch(types.JSONPatchType, body))
				if !patch.LostRace(err) {
					t.Errorf("a write that tests the place alone answered %v", err)
				}
			}
			env := &v1alpha1.SandboxEnv{}
			if err := w.Live.Get(w.ctx, w.Key("kiosk"), env); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			for _, cluster := range env.Spec.Clusters {
				for i := range cluster.Members {
					if snapshot.Has(&cluster.Members[i]) {
						t.Errorf("a snapshot was written to %s of %s", cluster.Members[i].Name, cluster.ClusterID)
					}
				}
			}
			if _, _, err := r.act(w.ctx, o, &p); err != nil {
				t.Errorf("act answered %v; a lost race is no failure", err)
			}
		})
	}
}

func TestLostRacesAndFaultyWrites(t *testing.T) {
	w := newIdleWorld(t)
	w.apply(kiosk(`{name: a}`))
	for name, write := range map[string]struct {
		patchType types.PatchType
		body      string
		race      bool
	}{
		"failed test":   {types.JSONPatchType, `[{"op":"test","path":"/spec/mode","value":"Nonsense"}]`, true},
		"missing path":  {types.JSONPatchType, `[{"op":"replace","path":"/spec/clusters/7/members","value":[]}]`, true},
		"other uid":     {types.MergePatchType, `{"metadata":{"uid":"other"},"spec":{"defaults":{"multiplier":2}}}`, true},
		"other version": {types.MergePatchType, `{"metadata":{"resourceVersion":"1"},"spec":{"defaults":{"multiplier":2}}}`, true},
		"invalid value": {types.JSONPatchType, `[{"op":"replace","path":"/spec/mode","value":"Nonsense"}]`, false},
		"broken rule":   {types.MergePatchType, `{"spec":{"autoscaling":{"groups":[{"name":"other"}]}}}`, false},
	} {
		err := w.patchEnv("kiosk", controllers.FieldManager, write.patchType, write.body)
		if err == nil || patch.LostRace(err) != write.race {
			t.Errorf("%s: taken for a lost race: %v, want %v: %v", name, patch.LostRace(err), write.race, err)
		}
	}
}

// newSettledWorld has an Env that is ready, and a stopped Reconciler.
func newSettledWorld(t *testing.T, member string) *world {
	t.Helper()
	w := newKiosk(t, member)
	w.stop()
	return w
}

// TestI5StaleCacheDeletesNothing decides about an Env as a lagging cache has it: without a member that has a pool by now.
func TestI5StaleCacheDeletesNothing(t *testing.T) {
	w := newKiosk(t, `{name: a}`)
	old := w.Env("kiosk")
	w.apply(kiosk(`{name: a}`, `{name: b}`))
	w.awaitReady("kiosk")
	w.stop()

	o := &observation{clusterID: local, Source: snapshot.Source{Env: old},
		pools: map[string]*v1alpha1.SandboxPool{"a": w.Pool("a"), "b": w.Pool("b")}}
	p := decide(o)
	if len(p.orphans) != 1 {
		t.Fatalf("the plan is %s: the test is of no use", describePlan(&p))
	}
	stale, _, err := w.bare().act(w.ctx, o, &p)
	if !stale || err != nil {
		t.Errorf("act answered %v, %v", stale, err)
	}
	if w.Pool("b").DeletionTimestamp != nil {
		t.Error("the pool of a member that the cache does not have yet was deleted")
	}
}

// TestStalePoolIsNotTakenBack has a lost snapshot and a pool whose replicas the cache does not have yet.
func TestStalePoolIsNotTakenBack(t *testing.T) {
	w := newSettledWorld(t, `{name: a, spec: {replicas: 2}}`)
	old := w.Pool("a")
	w.patchPool("a", `{"spec":{"replicas":7}}`)
	w.apply(kiosk(`{name: a}`))
	w.loseSnapshots("kiosk")

	o := &observation{clusterID: local, Source: snapshot.Source{Env: w.Env("kiosk")}, pools: map[string]*v1alpha1.SandboxPool{"a": old}}
	p := decide(o)
	stale, _, err := w.bare().act(w.ctx, o, &p)
	if p.members[0].verb != verbTakeBack || !stale || err != nil {
		t.Errorf("%s: act answered %v, %v", describePlan(&p), stale, err)
	}
	if len(w.Env("kiosk").Status.Snapshots) > 0 {
		t.Errorf("an old pool became the snapshot: %s", w.frozen("kiosk", "a"))
	}
}

// I3: a restored etcd issues generations a second time. What was observed before is not what exists, so a pool is not stamped
// from a manifest without a snapshot, nor a snapshot taken from another pool than the observed one.
func TestI3AfterARestoreGenerationsSayNothing(t *testing.T) {
	w := newSettledWorld(t, `{name: a, spec: {replicas: 2}}`)
	observed, pool := w.Env("kiosk"), w.Pool("a")
	sandboxcache.FillMembers(observed)
	w.loseSnapshots("kiosk")
	observed.Generation = w.Env("kiosk").Generation
	pool.Spec.Replicas = 3

	repair := &observation{clusterID: local, Source: snapshot.Source{Env: observed}, pools: map[string]*v1alpha1.SandboxPool{"a": pool}}
	takeBack := &observation{clusterID: local, Source: snapshot.Source{Env: w.Env("kiosk")},
		pools: map[string]*v1alpha1.SandboxPool{"a": pool}}
	for want, o := range map[verb]*observation{verbRepair: repair, verbTakeBack: takeBack} {
		p := decide(o)
		if p.members[0].verb != want {
			t.Fatalf("%s: the test is of no use", describePlan(&p))
		}
		if stale, _, err := w.bare().act(w.ctx, o, &p); !stale || err != nil {
			t.Errorf("%s: act answered %v, %v", want, stale, err)
		}
		if now := w.Pool("a"); !snapshot.HasTemplate(&now.Spec) || now.Spec.Replicas != 2 {
			t.Errorf("%s: the pool was made %v", want, now.Spec)
		}
		if len(w.Env("kiosk").Status.Snapshots) > 0 {
			t.Errorf("%s: another pool became the snapshot: %s", want, w.frozen("kiosk", "a"))
		}
	}
}

// I3: a pool that has lost its Pod template is completed, with its replicas.
func TestI3APoolWithoutATemplateIsMadeWhole(t *testing.T) {
	w := newSettledWorld(t, `{name: a}`)
	w.patchPool("a", `{"spec":{"replicas":4,"template":null}}`)
	w.loseSnapshots("kiosk")
	w.start()
	w.Eventually("a whole pool", func() error {
		pool := w.Pool("a")
		return wait.If(snapshot.HasTemplate(&pool.Spec) && pool.Spec.Replicas == 4, pool.Spec)
	})
	w.awaitReady("kiosk")
}

// TestStaleEnvIsNotStamped decides about an Env as it was before its member changed groups, and a pool as it is after.
func TestStaleEnvIsNotStamped(t *testing.T) {
	w := newKiosk(t, `{name: a, config: {scalingGroup: before}}`)
	old := w.Env("kiosk")
	sandboxcache.FillMembers(old)
	w.apply(kiosk(`{name: a, config: {scalingGroup: after}}`))
	w.Eventually("the label", func() error {
		got := w.Pool("a").Labels[v1alpha1.LabelScalingGroup]
		return wait.If(got == "after", got)
	})
	w.stop()

	o := &observation{clusterID: local, Source: snapshot.Source{Env: old}, pools: map[string]*v1alpha1.SandboxPool{"a": w.Pool("a")}}
	p := decide(o)
	stale, _, err := w.bare().act(w.ctx, o, &p)
	if p.members[0].verb != verbRepair || !stale || err != nil {
		t.Errorf("%s: act answered %v, %v", describePlan(&p), stale, err)
	}
	if got := w.Pool("a").Labels[v1alpha1.LabelScalingGroup]; got != "after" {
		t.Errorf("the pool was put back into group %q", got)
	}
}
