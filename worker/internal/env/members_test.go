// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/snapshot"
)

// kiosk is an Env whose local members are given in YAML flow style.
func kiosk(members ...string) string {
	return `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: kiosk, namespace: NS}
spec:
  templateRef: {name: TEMPLATE}
  mode: WarmPool
  clusters:
  - clusterID: east
    members: [` + strings.Join(members, ",\n      ") + "]\n"
}

// newKiosk is a world whose kiosk is ready.
func newKiosk(t *testing.T, members ...string) *world {
	t.Helper()
	w := newWorld(t)
	w.apply(templateManifest)
	w.apply(kiosk(members...))
	w.awaitReady("kiosk")
	return w
}

// scale writes the replicas of the kiosk's first member.
func (w *world) scale(manager string, replicas int) {
	w.t.Helper()
	w.Must(w.patchEnv("kiosk", manager, types.JSONPatchType,
		fmt.Sprintf(`[{"op":"replace","path":"/spec/clusters/0/members/0/spec/replicas","value":%d}]`, replicas)))
}

func (w *world) awaitReplicas(pool string, replicas int32) {
	w.t.Helper()
	w.Eventually(fmt.Sprintf("%d replicas of %s", replicas, pool), func() error {
		got := w.Pool(pool).Spec.Replicas
		return wait.If(got == replicas, got)
	})
}

func (w *world) awaitPool(name string) *v1alpha1.SandboxPool {
	w.t.Helper()
	pool := &v1alpha1.SandboxPool{}
	w.Eventually("pool "+name, func() error { return w.Live.Get(w.ctx, w.Key(name), pool) })
	return pool
}

func (w *world) awaitNoPool(name string) {
	w.t.Helper()
	w.Eventually("pool "+name+" to be gone", func() error {
		err := w.Live.Get(w.ctx, w.Key(name), &v1alpha1.SandboxPool{})
		return wait.If(apierrors.IsNotFound(err), err)
	})
}

func (w *world) awaitState(env, member string, state v1alpha1.ObservedMemberState) (found v1alpha1.EnvObservedMember) {
	w.t.Helper()
	w.Eventually(fmt.Sprintf("member %s to be %s", member, state), func() error {
		for _, cluster := range w.Env(env).Status.Clusters {
			for _, observed := range cluster.ObservedMembers {
				if cluster.ClusterID == local && observed.Name == member && observed.State == state {
					found = observed
					return nil
				}
			}
		}
		return fmt.Errorf("%s", toJSON(w.Env(env).Status))
	})
	return found
}

func TestFirstRendering(t *testing.T) {
	w := newKiosk(t,
		`{name: stated, spec: {replicas: 0}, config: {minReplicas: 3}}`,
		`{name: floor, config: {minReplicas: 3, scalingGroup: "", labels: {tier: gold}, annotations: {note: x}}}`,
		`{name: plain, config: {inlineResources: {limits: {cpu: 250m}}}}`,
	)
	for name, replicas := range map[string]int32{"stated": 0, "floor": 3, "plain": 0} {
		if got := w.Pool(name).Spec.Replicas; got != replicas {
			t.Errorf("pool %s has %d replicas, want %d", name, got, replicas)
		}
	}
	floor, plain := w.Pool("floor"), w.doc("SandboxPool", "plain")
	for key, want := range map[string]string{
		"tier": "gold", "team": "tools", "app.kubernetes.io/instance": "", v1alpha1.LabelEnv: "kiosk",
		v1alpha1.ManagedByLabelKey: v1alpha1.ManagedBySandboxAPIServer, v1alpha1.LabelScalingGroup: "",
	} {
		if got := floor.Labels[key]; got != want {
			t.Errorf("label %s = %q, want %q", key, got, want)
		}
	}
	if group := plain.GetLabels()[v1alpha1.LabelScalingGroup]; group != "default" {
		t.Errorf("the default scaling group's label is %q", group)
	}
	if !metav1.IsControlledBy(floor, w.Env("kiosk")) || floor.Annotations["note"] != "x" ||
		floor.Annotations[v1alpha1.SandboxPoolTemplateNameAnnotationKey] != w.Namespace+"-template" ||
		floor.Annotations[v1alpha1.SandboxPoolTemplateVersionAnnotationKey] != "v1.0.0" {
		t.Errorf("pool floor has metadata %s", toJSON(floor.ObjectMeta))
	}
	podSpec, _, _ := unstructured.NestedMap(plain.Object, "spec", "template", "spec")
	main := podSpec["containers"].([]any)[0].(map[string]any)
	if toJSON(podSpec["aFieldOfTomorrow"]) != `{"kept":true}` || toJSON(main["newProbe"]) != "5" ||
		toJSON(main["resources"]) != `{"limits":{"cpu":"250m"}}` || toJSON(main["image"]) != `"test.local/default:1"` {
		t.Errorf("the Pod template is %s", toJSON(podSpec))
	}
	if got := toJSON(plain.Object["spec"].(map[string]any)["runtimes"]); !strings.Contains(got, `"config":{"a":[2],"b":1}`) {
		t.Errorf("the runtimes are %s", got)
	}
}

func TestRemovedMembersAndSegments(t *testing.T) {
	both := kiosk(`{name: a}`, `{name: b}`)
	for name, again := range map[string]struct {
		manifest string
		args     []string
		left     []string
	}{
		"a member, client-side":          {kiosk(`{name: a}`), nil, []string{"a"}},
		"a member, server-side":          {kiosk(`{name: a}`), []string{"--server-side", "--force-conflicts"}, []string{"a"}},
		"the first member":               {kiosk(`{name: b}`), []string{"--server-side", "--force-conflicts"}, []string{"b"}},
		"the whole segment":              {strings.Split(both, "  clusters:")[0], nil, nil},
		"the whole segment, server-side": {strings.Split(both, "  clusters:")[0], []string{"--server-side"}, nil},
		"all members, server-side":       {kiosk(), []string{"--server-side"}, nil},
		"another cluster's in its place": {strings.Replace(both, "east", "north", 1), nil, nil},
		"the same, server-side":          {strings.Replace(both, "east", "north", 1), []string{"--server-side"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.apply(templateManifest)
			w.apply(both, again.args...)
			w.awaitReady("kiosk")
			w.apply(again.manifest, again.args...)
			for _, pool := range []string{"a", "b"} {
				if !slices.Contains(again.left, pool) {
					w.awaitNoPool(pool)
				}
			}
			w.Eventually("the members", func() error {
				names := []string{}
				for _, cluster := range w.Env("kiosk").Spec.Clusters {
					for _, member := range cluster.Members {
						if cluster.ClusterID == local {
							names = append(names, member.Name)
						}
					}
				}
				return wait.If(slices.Equal(names, again.left), fmt.Sprintf("%v, want %v", names, again.left))
			})
			for _, pool := range again.left {
				if w.Pool(pool).DeletionTimestamp != nil {
					t.Errorf("pool %s is being deleted", pool)
				}
			}
		})
	}
}

func TestMemberAddedAgain(t *testing.T) {
	const hold = "test.local/hold"
	w := newKiosk(t, `{name: a, spec: {replicas: 2}}`)
	first, frozen := w.Pool("a"), w.frozen("kiosk", "a")
	w.patchPool("a", `{"metadata":{"finalizers":["`+hold+`"]}}`)
	w.apply(strings.Replace(templateManifest, "v1.0.0", "v2.0.0", 1))

	// While the old pool winds down, it shows what the member is.
	w.apply(kiosk())
	w.Eventually("the pool to be deleted", func() error { return wait.If(w.Pool("a").DeletionTimestamp != nil, "it is not") })
	w.apply(kiosk(`{name: a}`))
	w.awaitState("kiosk", "a", v1alpha1.ObservedMemberStateMissing)
	w.Eventually("the snapshot", func() error {
		got := w.frozen("kiosk", "a")
		return wait.If(got == frozen, fmt.Sprintf("%s, want %s", got, frozen))
	})
	w.patchPool("a", `{"metadata":{"finalizers":null}}`)
	w.awaitReady("kiosk")
	if again := w.Pool("a"); again.UID == first.UID || toJSON(again.Spec) != toJSON(first.Spec) {
		t.Errorf("the pool is %s, want another like %s", toJSON(again), toJSON(first))
	}

	// Once the pool is gone, a member of its name is a new one.
	w.apply(kiosk())
	w.awaitNoPool("a")
	w.apply(kiosk(`{name: a}`))
	w.awaitReady("kiosk")
	if got := w.Pool("a").Annotations[v1alpha1.SandboxPoolTemplateVersionAnnotationKey]; got != "v2.0.0" {
		t.Errorf("made from version %s", got)
	}
}

func TestTemplateMissingThenThere(t *testing.T) {
	w := newWorld(t)
	w.apply(kiosk(`{name: a}`))
	message := w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	if !strings.Contains(message, w.Namespace+"-template") {
		t.Errorf("the message names no template: %s", message)
	}
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	w.awaitEvent("kiosk", v1alpha1.ReasonTemplateNotFound)
	w.apply(templateManifest)
	w.awaitReady("kiosk")
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionTrue, v1alpha1.ReasonTemplateMatches)
}

func TestNewTemplateChangesNoSnapshot(t *testing.T) {
	w := newKiosk(t, `{name: a}`)
	frozen, generation := w.frozen("kiosk", "a"), w.Pool("a").Generation
	w.apply(strings.Replace(templateManifest, "default:1", "default:2", 1))
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateOutdated)
	w.awaitReady("kiosk")
	if w.frozen("kiosk", "a") != frozen || w.Pool("a").Generation != generation {
		t.Error("a newer template has changed a member")
	}
	w.Must(w.Live.Delete(w.ctx, w.doc("SandboxTemplate", w.Namespace+"-template")))
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	w.awaitReady("kiosk")
}

func TestModeNotSupported(t *testing.T) {
	w := newWorld(t)
	w.apply(templateManifest)
	w.apply(strings.Replace(kiosk(`{name: a}`), "WarmPool", "OnDemandJob", 1))
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonModeNotSupported)
	if env := w.Env("kiosk"); snapshot.Has(&env.Spec.Clusters[0].Members[0]) {
		t.Error("a member was rendered")
	}
	if err := w.Live.Get(w.ctx, w.Key("a"), &v1alpha1.SandboxPool{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pool: %v", err)
	}
}

func TestPoolOfAnotherIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.apply(templateManifest)
	w.apply(`
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxPool
metadata: {name: a, namespace: NS, labels: {agentbox.navix.sh/env: kiosk}}
spec: {replicas: 7, template: {spec: {containers: [{name: x, image: "y"}]}}}
`)
	before := toJSON(w.Pool("a"))
	w.apply(kiosk(`{name: a}`))
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersInconsistent)
	w.awaitState("kiosk", "a", v1alpha1.ObservedMemberStateInconsistent)
	w.awaitEvent("kiosk", reasonPoolNotOwned)
	w.apply(kiosk(`{name: b}`))
	w.awaitReady("kiosk")
	if after := toJSON(w.Pool("a")); after != before {
		t.Errorf("the pool was changed from %s to %s", before, after)
	}
	w.apply(kiosk(`{name: a}`))
	w.Must(w.Live.Delete(w.ctx, w.Pool("a")))
	w.awaitReady("kiosk")
}

func TestEnvDeleted(t *testing.T) {
	w := newKiosk(t, `{name: a}`)
	w.Must(w.Live.Delete(w.ctx, w.Env("kiosk"), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	w.awaitNoPool("a")
	w.Eventually("the Env to be gone", func() error {
		err := w.Live.Get(w.ctx, w.Key("kiosk"), &v1alpha1.SandboxEnv{})
		return wait.If(apierrors.IsNotFound(err), err)
	})
}

// TestI14WideEnvsPoolsAreCreatedAtAPace: Envs with more members than pools may be made at once get them all, the last ones later.
func TestI14WideEnvsPoolsAreCreatedAtAPace(t *testing.T) {
	w := newWorld(t)
	w.apply(templateManifest)
	const least = 2 * time.Second
	var pools []string
	for _, env := range []string{"kiosk", "stall"} {
		var members []string
		for i := range (createdAtOnce+int(least.Seconds())*createdPerSecond)/2 + 5 {
			pools = append(pools, fmt.Sprint(env, i))
			members = append(members, fmt.Sprintf("{name: %s%d}", env, i))
		}
		w.apply(strings.Replace(kiosk(members...), "name: kiosk,", "name: "+env+",", 1))
	}
	var first, last time.Time
	for _, pool := range pools {
		created := w.awaitPool(pool).CreationTimestamp.Time
		if first.IsZero() || created.Before(first) {
			first = created
		}
		if created.After(last) {
			last = created
		}
	}
	if last.Sub(first) < least {
		t.Errorf("%d pools were created within %s, want at least %s", len(pools), last.Sub(first), least)
	}
}
