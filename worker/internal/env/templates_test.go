// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

func instanceTypes(types string) string {
	return `
apiVersion: v1
kind: ConfigMap
metadata: {name: atoll-instance-types, namespace: NS}
data: ` + types + "\n"
}

func (w *world) refresh(request *sandboxv1.RefreshEnvRequest) (*sandboxv1.RefreshEnvResponse, error) {
	request.Namespace, request.Name = w.Namespace, "kiosk"
	return w.reconciler.Refresh(w.ctx, request)
}

// refreshed is a refresh that must not fail, reported line by line.
func (w *world) refreshed(request *sandboxv1.RefreshEnvRequest) string {
	w.t.Helper()
	out, err := w.refresh(request)
	w.Must(err)
	var lines []string
	for _, m := range out.GetMembers() {
		lines = append(lines, fmt.Sprintf("%s %s %s", m.GetName(), m.GetOutcome(), m.GetReason()))
		lines = append(lines, m.GetChanges()...)
	}
	return w.fill(strings.Join(lines, "\n"))
}

func (w *world) awaitPoolIs(name, what string, is func(*v1alpha1.SandboxPool) bool) {
	w.t.Helper()
	w.Eventually("pool "+name+" with "+what, func() error {
		pool := w.Pool(name)
		return wait.If(is(pool), toJSON(pool))
	})
}

func limitOf(pool *v1alpha1.SandboxPool) string {
	return pool.Spec.Template.Spec.Containers[0].Resources.Limits.Cpu().String()
}

// A deleted instance type ends no member; a member whose type does not exist waits, and is rendered when the type exists.
func TestInstanceTypes(t *testing.T) {
	w := newWorld(t)
	w.apply(templateManifest)
	w.apply(kiosk(`{name: a, spec: {replicas: 2}, config: {instanceType: small, multiplier: 2}}`, `{name: b}`))
	message := w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersInvalid)
	if !strings.Contains(message, `a: config.instanceType: "small" is not valid, want a type of ConfigMap atoll-instance-types`) {
		t.Errorf("the message does not say what helps: %s", message)
	}
	w.awaitEvent("kiosk", reasonMemberInvalid)
	w.awaitPool("b")

	w.apply(instanceTypes(`{small: "{requests: {cpu: 500m}, limits: {cpu: 2}, multiplier: {max: 3}}"}`))
	w.awaitReady("kiosk")
	if pool := w.Pool("a"); limitOf(pool) != "4" || pool.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String() != "1" {
		t.Errorf("pool a was made with %s", toJSON(pool.Spec.Template.Spec.Containers[0].Resources))
	}
	before := w.frozen("kiosk", "a")

	w.apply(instanceTypes(`{other: "limits: {cpu: 1}"}`))
	message = w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse,
		v1alpha1.ReasonInstanceTypeChanged)
	if !strings.Contains(message, "a: goes on as it was made") {
		t.Errorf("the condition does not name the member: %s", message)
	}
	w.awaitState("kiosk", "a", v1alpha1.ObservedMemberStateActive)
	if got := w.refreshed(&sandboxv1.RefreshEnvRequest{Members: []string{"a"}}); got != "a REFUSED MemberInvalid" {
		t.Errorf("refreshing what cannot be made: %s", got)
	}
	if w.frozen("kiosk", "a") != before {
		t.Errorf("the snapshot has changed to %s", w.frozen("kiosk", "a"))
	}

	w.apply(instanceTypes(`{small: "{limits: {cpu: 3}}"}`))
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse, v1alpha1.ReasonInstanceTypeChanged)
	w.refreshed(&sandboxv1.RefreshEnvRequest{})
	w.awaitPoolIs("a", "a limit of 6", func(p *v1alpha1.SandboxPool) bool { return limitOf(p) == "6" && p.Spec.Replicas == 2 })
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionTrue, v1alpha1.ReasonTemplateMatches)
}

func TestRefresh(t *testing.T) {
	w := newKiosk(t, `{name: a, spec: {replicas: 2}}`, `{name: b}`)
	if got := w.refreshed(&sandboxv1.RefreshEnvRequest{}); got != "a UNCHANGED Refreshed\nb UNCHANGED Refreshed" {
		t.Errorf("refreshing what is new already: %s", got)
	}
	w.apply(strings.NewReplacer("default:1", "default:2", "v1.0.0", "v2.0.0").Replace(templateManifest))
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateOutdated)
	w.kubectl("", "scale", "sandboxpools/a", "--replicas=9") // drift, which is put back
	w.scale("by-hand", 4)
	w.awaitReplicas("a", 4) // its write may come late, after a rest
	before := w.awaitRest()

	dry := w.refreshed(&sandboxv1.RefreshEnvRequest{Members: []string{"a"}, DryRun: true, MaxUnavailable: "3"})
	for _, want := range []string{
		"a WOULD_REFRESH Refreshed", `metadata.annotations[agentbox.navix.sh/rollout-max-unavailable]: none -> "3"`,
		`metadata.annotations[agentbox.navix.sh/template-version]: "v1.0.0" -> "v2.0.0"`,
		`spec.template.spec.containers[0].image: "test.local/default:1" -> "test.local/default:2"`,
	} {
		if !strings.Contains(dry, want) {
			t.Errorf("a dry run does not say %s:\n%s", want, dry)
		}
	}
	if strings.Count(dry, "\n") != 4 { // the revision as well
		t.Errorf("a dry run says more than changes:\n%s", dry)
	}
	if got := w.writes.since(before); len(got) != 1 || w.Pool("a").Spec.Template.Spec.Containers[0].Image != "test.local/default:1" {
		t.Errorf("a dry run has written: %s", got)
	}

	if real := w.refreshed(&sandboxv1.RefreshEnvRequest{Members: []string{"a"}, MaxUnavailable: "3"}); real != strings.Replace(dry,
		"WOULD_REFRESH", "REFRESHED", 1) {
		t.Errorf("the dry run said\n%s\nand was done\n%s", dry, real)
	}
	w.awaitPoolIs("a", "the new image, and 4 replicas", func(p *v1alpha1.SandboxPool) bool {
		return p.Spec.Template.Spec.Containers[0].Image == "test.local/default:2" && p.Spec.Replicas == 4 &&
			p.Annotations[v1alpha1.RolloutAnnotationKey] == "3" && p.Annotations[v1alpha1.SandboxPoolTemplateVersionAnnotationKey] == "v2.0.0"
	})
	w.Eventually("a to be refreshed, and b not", func() error {
		message := w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse,
			v1alpha1.ReasonTemplateOutdated)
		return wait.If(!strings.Contains(message, "a:") && strings.Contains(message, "b:") &&
			w.Pool("b").Spec.Template.Spec.Containers[0].Image == "test.local/default:1", message)
	})
	if got := w.refreshed(&sandboxv1.RefreshEnvRequest{Members: []string{"a"}}); got != "a REFRESHED Refreshed\n"+
		`metadata.annotations[agentbox.navix.sh/rollout-max-unavailable]: "3" -> none` {
		t.Errorf("a refresh with the usual rollout: %s", got)
	}
	w.awaitPoolIs("a", "no rollout of its own", func(p *v1alpha1.SandboxPool) bool {
		_, there := p.Annotations[v1alpha1.RolloutAnnotationKey]
		return !there
	})
	w.awaitEvent("kiosk", reasonRefreshed)
}

// Invalid requests for a refresh, with what is valid.
func TestRefreshIsRefused(t *testing.T) {
	w := newKiosk(t, `{name: a}`)
	before := w.frozen("kiosk", "a")
	refused := func(what string, reason problem.Reason, text string, request *sandboxv1.RefreshEnvRequest) {
		t.Helper()
		if _, err := w.refresh(request); err == nil || problem.FromError(err).Reason != reason || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("an unknown member", problem.NotFound, "it has a", &sandboxv1.RefreshEnvRequest{Members: []string{"x"}})
	for _, limit := range []string{"-1", "120%", "many", "1.5", "-5%"} {
		refused("maxUnavailable "+limit, problem.Invalid, "maxUnavailable", &sandboxv1.RefreshEnvRequest{MaxUnavailable: limit})
	}
	_, err := w.reconciler.Refresh(w.ctx, &sandboxv1.RefreshEnvRequest{Namespace: w.Namespace, Name: "none"})
	if err == nil || problem.FromError(err).Reason != problem.NotFound || !strings.Contains(err.Error(), "has kiosk") {
		t.Errorf("an unknown Env: %v", err)
	}
	w.kept.Store(true)
	refused("an Env that another controller keeps", problem.Unavailable, "docs/moving-over.md", &sandboxv1.RefreshEnvRequest{})
	w.kept.Store(false)

	// Templates that no pool can be rendered from, and a missing one: the member stays as it is, and reports why.
	for name, change := range map[string][2]string{
		"without containers":           {"containers:", "containers: []\n      dropped:"},
		"with a quantity that is none": {"cpu: 1000m", "cpu: lots"},
		"without an image":             {`image: "test.local/default:1", `, ""},
	} {
		w.apply(strings.Replace(templateManifest, change[0], change[1], 1))
		w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateOutdated)
		if got := w.refreshed(&sandboxv1.RefreshEnvRequest{}); got != "a REFUSED MemberInvalid" {
			t.Errorf("a template %s: %s", name, got)
		}
	}
	w.kubectl("", "delete", "sandboxtemplate", w.Namespace+"-template")
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	if got := w.refreshed(&sandboxv1.RefreshEnvRequest{}); got != "a REFUSED TemplateNotFound" {
		t.Errorf("a template that is gone: %s", got)
	}
	w.awaitState("kiosk", "a", v1alpha1.ObservedMemberStateActive)
	if w.frozen("kiosk", "a") != before {
		t.Errorf("the snapshot has changed to %s", w.frozen("kiosk", "a"))
	}
}

// I3: concurrent refreshes, user writes and re-applied manifests: replicas are the user's last, and no snapshot is lost.
func TestRefreshUnderConcurrentWrites(t *testing.T) {
	w := newWorld(t)
	w.apply(templateManifest)
	manifest := kiosk(`{name: a, config: {scalingGroup: g}}`, `{name: b, config: {scalingGroup: ""}}`)
	w.apply(manifest)
	w.awaitReady("kiosk")
	w.apply(strings.Replace(templateManifest, "default:1", "default:2", 1))
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateOutdated)
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for i := range 30 {
			limit := fmt.Sprintf("%d%%", i)
			if _, err := w.refresh(&sandboxv1.RefreshEnvRequest{MaxUnavailable: limit}); err != nil {
				t.Errorf("refresh: %v", err)
			}
		}
	})
	for i := range 30 {
		w.Must(w.patchEnv("kiosk", "by-hand", types.JSONPatchType, fmt.Sprintf(
			`[{"op":"test","path":"/spec/clusters/0/members/0/name","value":"a"},{"op":"add","path":"/spec/clusters/0/members/0/config/priority",`+
				`"value":%d}]`, i)))
		if i%10 == 5 {
			w.apply(manifest)
		}
	}
	w.Must(w.patchEnv("kiosk", "by-hand", types.MergePatchType, `{"metadata":{"labels":{"last":"write"}}}`))
	all.Wait()
	w.refreshed(&sandboxv1.RefreshEnvRequest{})
	w.awaitPoolIs("a", "the new image", func(p *v1alpha1.SandboxPool) bool {
		return p.Spec.Template.Spec.Containers[0].Image == "test.local/default:2"
	})
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionTrue, v1alpha1.ReasonTemplateMatches)
	w.awaitReady("kiosk")
}

const pullSecretManifest = `
apiVersion: v1
kind: Secret
metadata: {name: ips-kiosk, namespace: NS}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{}}'}
`

// A worker without permission to read Secrets does all else, and keeps a pull secret that a pool has.
func TestPullSecretsAreOptional(t *testing.T) {
	w := newIdleWorld(t)
	w.apply(pullSecretManifest)
	w.apply(templateManifest)
	w.apply(kiosk(`{name: a, spec: {replicas: 2}}`))
	pulls := func(p *v1alpha1.SandboxPool) bool { return len(p.Spec.Template.Spec.ImagePullSecrets) == 1 }
	w.start()
	w.awaitReady("kiosk")
	w.awaitPoolIs("a", "the pull secret", pulls)
	w.stop()
	w.secretless = true
	w.start()
	w.apply(kiosk(`{name: a, spec: {replicas: 2}}`, `{name: b, spec: {replicas: 1}}`))
	w.awaitReady("kiosk")
	w.awaitRest()
	if !pulls(w.Pool("a")) || pulls(w.Pool("b")) {
		t.Errorf("a pulls with %v, b with %v", w.Pool("a").Spec.Template.Spec.ImagePullSecrets, w.Pool("b").Spec.Template.Spec.ImagePullSecrets)
	}
}

// A pull secret that exists when a member is rendered, that is created later, that is deleted and created again.
func TestPullSecret(t *testing.T) {
	w := newWorld(t)
	w.apply(strings.Replace(templateManifest, "    spec:\n", "    spec:\n      imagePullSecrets: [{name: of-template}]\n", 1))
	w.apply(kiosk(`{name: a, spec: {replicas: 2}}`))
	w.awaitReady("kiosk")
	// Of another type, and for another Env: neither is taken.
	w.apply(strings.NewReplacer("ips-kiosk", "ips-other").Replace(pullSecretManifest))
	w.kubectl("", "create", "secret", "generic", "ips-kiosk")
	count := w.awaitRest()
	w.kubectl("", "delete", "secret", "ips-kiosk")
	if got := w.writes.since(count); len(got) > 0 {
		t.Errorf("written for other Secrets: %s", got)
	}

	named := func(want ...string) func(*v1alpha1.SandboxPool) bool {
		return func(p *v1alpha1.SandboxPool) bool {
			var names []string
			for _, ref := range p.Spec.Template.Spec.ImagePullSecrets {
				names = append(names, ref.Name)
			}
			return slices.Equal(names, want) && p.Spec.Replicas == 2
		}
	}
	w.apply(pullSecretManifest)
	w.awaitPoolIs("a", "the pull secret", named("of-template", "ips-kiosk"))
	w.awaitEvent("kiosk", reasonPullSecretFound)
	// Taken off by hand: it is in the snapshot.
	w.patchPool("a", `{"spec":{"template":{"spec":{"imagePullSecrets":[]}}}}`)
	w.awaitPoolIs("a", "the pull secret again", named("of-template", "ips-kiosk"))
	count = w.awaitRest()
	w.Must(w.Live.Delete(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "ips-kiosk"}}))
	w.apply(pullSecretManifest)
	w.awaitRest()
	if got := w.writes.since(count); len(got) > 0 {
		t.Errorf("written for a Secret that was made anew: %s", got)
	}
	w.Must(w.Live.Delete(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "ips-kiosk"}}))
	w.Eventually("a refresh without the Secret", func() error {
		got := w.refreshed(&sandboxv1.RefreshEnvRequest{DryRun: true})
		return wait.If(strings.Contains(got, "imagePullSecrets"), got)
	})
	w.refreshed(&sandboxv1.RefreshEnvRequest{})
	w.awaitPoolIs("a", "the template's alone", named("of-template"))
}

// Saturation is mirrored, and ends without an event.
func TestSaturationIsMirrored(t *testing.T) {
	w := newWorld(t)
	w.apply(templateManifest)
	w.apply(kiosk(`{name: a, config: {scalingGroup: g}}`) +
		"  autoscaling: {groups: [{name: g, enabled: true, scaleUpPolicy: {saturationCooldownSeconds: 3}}]}\n")
	w.awaitReady("kiosk")
	w.Must(w.Live.Status().Patch(w.ctx, w.Pool("a"), statusPatch(
		`{"status":{"autoscaling":{"lastScaleUpAttemptTime":%q,"lastScaleUpAttemptResult":"Insufficient"}}}`)))
	if until := w.awaitState("kiosk", "a", v1alpha1.ObservedMemberStateSaturated).SaturatedUntil; until == nil {
		t.Error("saturated without a time")
	}
	if until := w.awaitState("kiosk", "a", v1alpha1.ObservedMemberStateActive).SaturatedUntil; until != nil {
		t.Errorf("active, and saturated until %s", until)
	}
}

// Documentation of a template stays there; a member may have its own, but no other reserved keys.
func TestDocs(t *testing.T) {
	w := newWorld(t)
	w.apply(strings.Replace(templateManifest, "metadata:\n",
		"metadata:\n  annotations: {agentbox.navix.sh/docs: '# long', agentbox.navix.sh/recycle-policy: Replace}\n", 1))
	w.apply(kiosk(`{name: a}`, `{name: b, config: {annotations: {agentbox.navix.sh/docs: mine}}}`,
		`{name: c, config: {annotations: {agentbox.navix.sh/rollout-max-unavailable: "1"}}}`))
	message := w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersInvalid)
	if !strings.Contains(message, "c: config.annotations: agentbox.navix.sh/rollout-max-unavailable is reserved") {
		t.Errorf("the message is %s", message)
	}
	a, b := w.awaitPool("a"), w.awaitPool("b")
	if a.Annotations[v1alpha1.SandboxTemplateDocsAnnotationKey] != "" || b.Annotations[v1alpha1.SandboxTemplateDocsAnnotationKey] != "mine" ||
		a.Annotations[v1alpha1.RecyclePolicyAnnotationKey] != "Replace" {
		t.Errorf("annotations of a %s, of b %s", toJSON(a.Annotations), toJSON(b.Annotations))
	}
}

// A pool is made without a ServiceAccount token unless its template says otherwise. What was frozen before stays, until it is
// refreshed.
func TestI14PodsGetNoToken(t *testing.T) {
	w := newWorld(t)
	w.apply(templateManifest)
	w.apply(kiosk(`{name: a}`,
		`{name: before, spec: {replicas: 0, template: {spec: {containers: [{name: main, image: "test.local/default:1"}]}}}}`))
	token := func(name string) *bool { return w.awaitPool(name).Spec.Template.Spec.AutomountServiceAccountToken }
	if got := token("a"); got == nil || *got {
		t.Errorf("rendered with automountServiceAccountToken %s", toJSON(got))
	}
	w.awaitReady("kiosk")
	w.awaitRest()
	if got := token("before"); got != nil {
		t.Errorf("a frozen pool got automountServiceAccountToken %s", toJSON(got))
	}
	if got := w.refreshed(&sandboxv1.RefreshEnvRequest{Members: []string{"before"}}); !strings.Contains(got, "automountServiceAccountToken") {
		t.Errorf("refreshed: %s", got)
	}
	w.awaitPoolIs("before", "no token", func(p *v1alpha1.SandboxPool) bool {
		got := p.Spec.Template.Spec.AutomountServiceAccountToken
		return got != nil && !*got
	})
	w.apply(strings.Replace(templateManifest, "      aFieldOfTomorrow:", "      automountServiceAccountToken: true\n      aFieldOfTomorrow:",
		1))
	w.Eventually("a refresh to the template's own choice", func() error {
		got := w.refreshed(&sandboxv1.RefreshEnvRequest{Members: []string{"a"}})
		return wait.If(strings.Contains(got, "automountServiceAccountToken: false -> true"), got)
	})
	w.awaitPoolIs("a", "a token", func(p *v1alpha1.SandboxPool) bool { return *p.Spec.Template.Spec.AutomountServiceAccountToken })
}

// What a template allows is frozen in its pools, where nothing is added by hand. A list with a fault is refused there, and on an
// Env it shows in Ready.
func TestAllowedListsTravel(t *testing.T) {
	w := newWorld(t)
	allowing := func(list string) string {
		return strings.Replace(templateManifest, "metadata:\n", "metadata:\n  annotations: {agentbox.navix.sh/allowed-images: '"+list+"'}\n", 1)
	}
	w.apply(allowing("r.example/*"))
	w.apply(kiosk(`{name: a}`, `{name: b, config: {annotations: {agentbox.navix.sh/allowed-containers: side}}}`,
		`{name: c, config: {annotations: {agentbox.navix.sh/allowed-images: "*x"}}}`))
	message := w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersInvalid)
	if !strings.Contains(message,
		`c: metadata.annotations[agentbox.navix.sh/allowed-images] line 1: "*x" is not valid, want an image such as`) {
		t.Errorf("the message is %s", message)
	}
	a, b := w.awaitPool("a"), w.awaitPool("b")
	if a.Annotations[v1alpha1.AllowedImagesAnnotationKey] != "r.example/*" ||
		b.Annotations[v1alpha1.AllowedContainersAnnotationKey] != "side" {
		t.Errorf("annotations of a %s, of b %s", toJSON(a.Annotations), toJSON(b.Annotations))
	}
	w.patchPool("a", `{"metadata":{"annotations":{"agentbox.navix.sh/allowed-images":"*","agentbox.navix.sh/allowed-containers":"side"}}}`)
	w.awaitPoolIs("a", "its template's lists", func(p *v1alpha1.SandboxPool) bool {
		_, more := p.Annotations[v1alpha1.AllowedContainersAnnotationKey]
		return p.Annotations[v1alpha1.AllowedImagesAnnotationKey] == "r.example/*" && !more
	})
	w.apply(strings.Replace(kiosk(`{name: a}`), "namespace: NS}", "namespace: NS, annotations: {agentbox.navix.sh/allowed-images: '*x'}}", 1))
	w.Eventually("the fault in Ready", func() error {
		message := w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionReady, metav1.ConditionTrue, v1alpha1.ReasonMembersReady)
		return wait.If(strings.Contains(message, `a list allows nothing: metadata.annotations[agentbox.navix.sh/allowed-images] line 1: "*x"`),
			message)
	})
}

// statusPatch fills the time of now into a patch.
func statusPatch(format string) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, time.Now().UTC().Format(time.RFC3339)))
}

// Members are moved between groups while their pools change: each ends in its last group, with its snapshot unchanged and the
// same pool; and the groups' totals follow.
func TestMembersMovedBetweenGroups(t *testing.T) {
	w := newWorld(t)
	w.apply(templateManifest)
	groups := "  autoscaling: {groups: [{name: one, enabled: true}, {name: two}]}\n"
	members := func(a, b string) string {
		return kiosk(`{name: a, spec: {replicas: 2}, config: {scalingGroup: `+a+`}}`,
			`{name: b, spec: {replicas: 3}, config: {scalingGroup: `+b+`}}`,
			`{name: c, config: {scalingGroup: one}}`, `{name: d, config: {scalingGroup: two}}`) + groups
	}
	w.apply(members("one", "two"))
	w.awaitReady("kiosk")
	a, b, frozen := w.Pool("a"), w.Pool("b"), w.frozen("kiosk", "a")
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for i := range 40 {
			for _, pool := range []*v1alpha1.SandboxPool{a, b} {
				if err := w.Live.Status().Patch(w.ctx, pool.DeepCopy(), client.RawPatch(types.MergePatchType,
					fmt.Appendf(nil, `{"status":{"idleReplicas":%d}}`, i%3))); err != nil {
					t.Errorf("counting: %v", err)
				}
			}
		}
	})
	for i := range 10 {
		if i%2 == 0 {
			w.apply(members("two", `""`))
		} else {
			w.apply(members("one", "two"))
		}
	}
	w.apply(members("two", `""`))
	all.Wait()
	w.awaitPoolIs("a", "group two", func(p *v1alpha1.SandboxPool) bool {
		return p.UID == a.UID && p.Labels[v1alpha1.LabelScalingGroup] == "two"
	})
	w.awaitPoolIs("b", "no group", func(p *v1alpha1.SandboxPool) bool {
		_, there := p.Labels[v1alpha1.LabelScalingGroup]
		return p.UID == b.UID && !there && p.Spec.Replicas == 3
	})
	w.Eventually("the snapshot as it was", func() error { // the last apply takes it away once more
		got := w.frozen("kiosk", "a")
		return wait.If(got == frozen, fmt.Sprintf("it was %s and is %s", frozen, got))
	})
	w.awaitReady("kiosk")
	w.Eventually("the groups' totals", func() error {
		for _, g := range w.Env("kiosk").Status.ScalingGroups {
			if want := map[string]int32{"one": 0, "two": 2}[g.Name]; g.TotalDesired != want {
				return fmt.Errorf("%s", toJSON(w.Env("kiosk").Status.ScalingGroups))
			}
		}
		return nil
	})
}
