// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/controllers"
)

func TestDriftIsRepaired(t *testing.T) {
	w := newKiosk(t, `{name: a, spec: {replicas: 2}, config: {labels: {tier: gold}}}`)
	want := w.doc("SandboxPool", "a")
	for _, drift := range []struct{ name, patch, event string }{
		{"label", `{"metadata":{"labels":{"tier":"lead"}}}`, "label tier"},
		{"label removed", `{"metadata":{"labels":{"tier":null}}}`, "label tier"},
		{"all labels removed", `{"metadata":{"labels":null}}`, "label " + v1alpha1.LabelEnv},
		{"env label", `{"metadata":{"labels":{"` + v1alpha1.LabelEnv + `":"other"}}}`, "label " + v1alpha1.LabelEnv},
		{"annotation", `{"metadata":{"annotations":{"` + v1alpha1.TemplateRevisionAnnotationKey + `":"x"}}}`,
			"annotation " + v1alpha1.TemplateRevisionAnnotationKey},
		{"replicas", `{"spec":{"replicas":9}}`, "replicas (9 instead of 2)"},
		{"image", `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"evil"}]}}}}`, "template"},
		{"template added to", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`, "template"},
		{"runtimes", `{"spec":{"runtimes":null}}`, "runtimes"},
		{"timeout", `{"spec":{"defaultIdleTimeout":"1s"}}`, "defaultIdleTimeout"},
		{"idle image", `{"spec":{"idleImage":"evil"}}`, "idleImage"},
		{"image policy", `{"spec":{"podCreationImagePolicy":"PoolDefaultImage"}}`, "podCreationImagePolicy"},
	} {
		t.Run(drift.name, func(t *testing.T) {
			w.t = t
			w.patchPool("a", drift.patch)
			w.Eventually("the repair", func() error {
				got := w.doc("SandboxPool", "a")
				if diff := cmp.Diff(toJSON(want.Object["spec"]), toJSON(got.Object["spec"])) +
					cmp.Diff(want.GetLabels(), got.GetLabels()) + cmp.Diff(want.GetAnnotations(), got.GetAnnotations()); diff != "" {
					return fmt.Errorf("(-want +got):\n%s", diff)
				}
				return nil
			})
			w.Eventually("an event that names "+drift.event, func() error {
				out := w.kubectl("", "get", "events", "-o", "jsonpath={.items[*].message}")
				return wait.If(strings.Contains(out, drift.event), out)
			})
		})
	}
	w.t = t
	if got := w.Pool("a").UID; got != want.GetUID() {
		t.Error("the pool was replaced")
	}
	w.patchPool("a", `{"metadata":{"labels":{"theirs":"1"},"annotations":{"theirs":"1"}},"spec":{"replicas":9}}`)
	w.Eventually("the repair", func() error {
		got := w.Pool("a")
		return wait.If(got.Spec.Replicas == 2 && got.Labels["theirs"] == "1" && got.Annotations["theirs"] == "1", toJSON(got))
	})
	if strings.Contains(w.frozen("kiosk", "a"), "theirs") {
		t.Error("another's label became part of the snapshot")
	}
}

func TestScaleSubresourceIsDriftToo(t *testing.T) {
	w := newKiosk(t, `{name: a, spec: {replicas: 2}}`)
	w.kubectl("", "scale", "sandboxpool", "a", "--replicas=6")
	w.awaitReplicas("a", 2)
}

// TestIntendedChanges are those of the Env. They are not reported as drift, also if no worker ran meanwhile.
func TestIntendedChanges(t *testing.T) {
	w := newKiosk(t, `{name: a, spec: {replicas: 2}}`)
	w.scale("kubectl-edit", 4)
	w.awaitReplicas("a", 4)
	const want = "the Env has changed; updated replicas (2 instead of 4)"
	if note := w.awaitEvent("kiosk", v1alpha1.ReasonPoolUpdated); !strings.Contains(note, want) {
		t.Errorf("the event of a change of the Env: %s", note)
	}
	w.apply(kiosk(`{name: a, spec: {replicas: 4}, config: {scalingGroup: other}}`))
	w.Eventually("the group's label to follow", func() error {
		got := w.Pool("a").Labels[v1alpha1.LabelScalingGroup]
		return wait.If(got == "other", got)
	})
	w.awaitReady("kiosk")
	w.stop()
	w.scale("kubectl-edit", 5)
	w.start()
	w.awaitReplicas("a", 5)
	w.awaitReady("kiosk")
	if out := w.kubectl("", "get", "events", "-o", "jsonpath={.items[*].message}"); strings.Contains(out, "drifted") {
		t.Errorf("intended changes are reported as drift: %s", out)
	}
	w.kubectl("", "scale", "sandboxpool", "a", "--replicas=9")
	w.awaitReplicas("a", 5)
	if note := w.awaitEvent("kiosk", v1alpha1.ReasonPoolDrifted); !strings.Contains(note, "repaired replicas (9 instead of 5)") {
		t.Errorf("the event of drift: %s", note)
	}
}

func TestPoolDeletedByHandComesBack(t *testing.T) {
	w := newKiosk(t, `{name: a, spec: {replicas: 2}}`)
	before := w.Pool("a")
	w.Must(w.Live.Delete(w.ctx, before))
	w.Eventually("another pool", func() error {
		got := w.awaitPool("a")
		return wait.If(got.UID != before.UID && toJSON(got.Spec) == toJSON(before.Spec), toJSON(got))
	})
}

func TestReplicas(t *testing.T) {
	const group = "  autoscaling: {groups: [{name: default, enabled: true}]}\n"
	w := newWorld(t)
	w.apply(templateManifest)
	await := func(replicas int32) {
		t.Helper()
		w.Eventually(fmt.Sprintf("%d replicas", replicas), func() error {
			env, pool := w.desired("kiosk", "a"), w.Pool("a").Spec.Replicas
			return wait.If(env == replicas && pool == replicas, fmt.Sprintf("%d in the Env, %d in the pool", env, pool))
		})
	}
	w.apply(kiosk(`{name: a, spec: {replicas: 2}, config: {priority: 1}}`))
	w.awaitReady("kiosk")
	// The user's, while the group is not enabled: edited, re-applied, stated as 0, and not stated.
	w.scale("kubectl-edit", 4)
	await(4)
	w.apply(kiosk(`{name: a, spec: {replicas: 3}}`))
	await(3)
	w.apply(kiosk(`{name: a}`))
	await(3)
	w.apply(kiosk(`{name: a, spec: {replicas: 0}}`))
	await(0)
	w.apply(kiosk(`{name: a, spec: {replicas: 2}, config: {priority: 1}}`))
	await(2)
	// The autoscaler's, once the group is enabled.
	w.apply(kiosk(`{name: a, spec: {replicas: 5}, config: {priority: 1}}`) + group)
	w.awaitEvent("kiosk", reasonReplicasOfOther)
	await(2)
	w.scale(controllers.FieldManager, 6)
	await(6)
	w.scale("kubectl-edit", 1)
	w.awaitEvent("kiosk", reasonReplicasOfOther)
	await(6)
	// What is edited in the same moment as the Env counts as the Env's, so it is edited until it is not.
	edited := 6
	w.Eventually("an event about the edited pool", func() error {
		edited++
		w.patchPool("a", fmt.Sprintf(`{"spec":{"replicas":%d}}`, edited))
		return w.event("kiosk", v1alpha1.ReasonPoolDrifted, new(string))
	})
	await(6)
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionAutoscalingActive, metav1.ConditionFalse, v1alpha1.ReasonAutoscalerNotRunning)
}

func TestConfigChangedAfterAdmission(t *testing.T) {
	w := newKiosk(t, `{name: a, spec: {replicas: 2}, config: {labels: {tier: gold}}}`)
	frozen := w.frozen("kiosk", "a")

	w.apply(kiosk(`{name: a, config: {scalingGroup: "", labels: {tier: lead}}}`))
	w.Eventually("the group's label to go", func() error {
		got, ok := w.Pool("a").Labels[v1alpha1.LabelScalingGroup]
		return wait.If(!ok, got)
	})
	w.awaitReady("kiosk")
	if got := w.frozen("kiosk", "a"); got != frozen {
		t.Errorf("the snapshot was rendered again: %s, was %s", got, frozen)
	}
	w.apply(kiosk(`{name: a, config: {inlineResources: {limits: {cpu: 1}}}}`))
	w.awaitState("kiosk", "a", v1alpha1.ObservedMemberStateInconsistent)
	w.apply(kiosk(`{name: a, config: {maxReplicas: 2, scalingGroup: ""}}`))
	w.awaitState("kiosk", "a", v1alpha1.ObservedMemberStateSaturated)
	w.awaitReady("kiosk")
}

func TestNothingIsWrittenAtRest(t *testing.T) {
	w := newIdleWorld(t)
	w.open(func(manifest string) { w.apply(manifest) })
	w.Eventually("the totals", func() error {
		status := w.Env("shop").Status
		return wait.If(status.MemberCount == 3 && status.DesiredReplicas == 16 && status.IdleReplicas == 7 && status.RunningReplicas == 1,
			toJSON(status))
	})
	w.awaitReady("shop")
	before := w.awaitRest()
	// A touch of the Env, of both pools and of the template causes a reconcile of everything; so does a restart.
	w.kubectl("", "annotate", "sandboxenv", "shop", "touched=1")
	for _, name := range shopMembers {
		w.patchPool(name, `{"metadata":{"annotations":{"touched":"1"}}}`)
	}
	w.kubectl("", "annotate", "sandboxtemplate", w.Namespace+"-template", "touched=1")
	w.stop()
	w.start()
	rest := time.NewTimer(2 * restTime)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-w.ctx.Done():
	}
	if got := w.writes.since(before); len(got) > 0 {
		t.Errorf("written at rest: %s", got)
	}
}
