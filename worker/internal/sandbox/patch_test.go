// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

func fullGrant(image string) *Grant {
	return &Grant{
		Claim: Claim{
			ID: "01hx-east", Key: `job "1"`, KeyHash: "0123456789abcdef0123456789abcdef", Attempt: 2, Proof: "01234567.mac", Incarnation: 7,
			Team: "red/blue", User: "ann",
		},
		Timeouts: Timeouts{Idle: 1500 * time.Millisecond, Startup: 2 * time.Minute, MaxLifetime: time.Hour, FirstActivity: 5 * time.Minute},
		Labels:   map[string]string{"tier": "gold", "a~b": "x"},
		Metadata: map[string]string{"note": "a/b ~ü"},
		Image:    image, Now: noon,
	}
}

func mustClaim(t *testing.T, pod *corev1.Pod, g *Grant) ([]byte, Phase) {
	t.Helper()
	patch, phase, err := ClaimPatch(pod, g)
	must.Succeed(t, err)
	return patch, phase
}

func TestPatchesAreWhatTheyWere(t *testing.T) {
	patch, phase := mustClaim(t, idlePod(), fullGrant(idleImage))
	if phase != Running {
		t.Errorf("phase %s for the image that runs, want running", phase)
	}
	golden(t, "claim-same-image", patch)

	patch, phase = mustClaim(t, idlePod(), fullGrant(tenantImage))
	if phase != Starting {
		t.Errorf("phase %s for another image, want starting", phase)
	}
	golden(t, "claim-swap", patch)

	patch, _ = mustClaim(t, idlePod(), &Grant{Claim: Claim{ID: "01hx-east", Incarnation: 7}, Image: idleImage, Now: noon})
	golden(t, "claim-bare", patch)

	patch, phase = mustClaim(t, idlePod(), &Grant{Claim: Claim{ID: "01hx-east"}, Image: idleImage, Hooks: `[{"exec":{"command":["true"]}}]`,
		Now: noon})
	if phase != Starting {
		t.Errorf("phase %s with hooks to run, want starting", phase)
	}
	golden(t, "claim-hooks", patch)

	golden(t, "start", StartPatch(idlePod(holds(Starting), runs(tenantImage, "containerd://c2"),
		annotated(v1alpha1.SandboxStatusDetailAnnotationKey, `{}`)), noon))

	code := int32(137)
	end := End{StopReason: v1alpha1.SandboxStopReasonFailed, Reason: "OOMKilled", Message: "too big", ExitCode: &code}
	for name, pod := range map[string]*corev1.Pod{
		"release-reset":   idlePod(holds(Running), runs(tenantImage, "containerd://c2")),
		"release-replace": idlePod(holds(Running)),
	} {
		golden(t, name, ReleasePatch(pod, poolSpec(), end, noon))
	}
	golden(t, "expire", ExpirePatch(idlePod(holds(Running), annotated(v1alpha1.SandboxIdleTimeoutAnnotationKey, "60"),
		annotated(v1alpha1.SandboxLastActiveAnnotationKey, "")), poolSpec(), End{
		StopReason: v1alpha1.SandboxStopReasonReleased, Reason: "IdleTimeout", Message: "no activity for 1m0s",
	}, noon))
	hour, none := time.Hour, time.Duration(0)
	golden(t, "timeouts", TimeoutsPatch(idlePod(holds(Running), annotated(v1alpha1.SandboxFirstActivityTimeoutAnnotationKey, "300")),
		TimeoutsChange{Idle: &hour, MaxLifetime: &none}))
	golden(t, "active", ActivePatch(idlePod(holds(Running)), noon))
	golden(t, "idle", IdlePatch(stopped(), poolSpec(), noon))
	dying := idlePod(holds(Running), func(pod *corev1.Pod) { pod.Finalizers = []string{"other", v1alpha1.SandboxProtectionFinalizer} })
	golden(t, "bury", BuryPatch(dying, nil))
	golden(t, "bury-released", BuryPatch(dying, &Termination{End{StopReason: v1alpha1.SandboxStopReasonReleased}, noon}))
	golden(t, "fail", FailPatch(idlePod(holds(Running)), End{Reason: "Evicted"}, noon))

	detail, err := DetailPatch(idlePod(holds(Starting)), v1alpha1.SandboxStatusDetail{Reason: "Pulling"}, noon)
	must.Succeed(t, err)
	golden(t, "detail", detail)
}

// stopped is a Pod that was released and whose reset the kubelet has carried out.
func stopped(change ...func(*corev1.Pod)) *corev1.Pod {
	return idlePod(append([]func(*corev1.Pod){
		holds(Stopping), runs(idleImage, "containerd://c3"),
		annotated(v1alpha1.SandboxRunningImagesAnnotationKey, `{"main":"`+tenantImage+`"}`),
		annotated(v1alpha1.SandboxContainerIDAnnotationKey, "containerd://c2"),
		annotated(v1alpha1.SandboxStopReasonAnnotationKey, "Released"),
		annotated(v1alpha1.SandboxTerminatedAtAnnotationKey, "2026-03-01T11:30:00Z"),
	}, change...)...)
}

// apply runs a patch as the API server does.
func apply(t *testing.T, pod *corev1.Pod, patch []byte) (*corev1.Pod, error) {
	t.Helper()
	decoded, err := jsonpatch.DecodePatch(patch)
	must.Succeed(t, err)
	doc, err := json.Marshal(pod)
	must.Succeed(t, err)
	doc, err = decoded.Apply(doc)
	if err != nil {
		return nil, err
	}
	var out corev1.Pod
	must.Succeed(t, json.Unmarshal(doc, &out))
	return &out, nil
}

func TestALifeLeavesNothingBehind(t *testing.T) {
	pod := idlePod()
	before := Read(pod)
	step := func(patch []byte) {
		t.Helper()
		next, err := apply(t, pod, patch)
		must.Succeed(t, err)
		pod = next
	}
	grant := fullGrant(tenantImage)
	grant.Hooks, grant.DenyEgress = `[{"http":{"port":1,"body":"secret"}}]`, true
	patch, _ := mustClaim(t, pod, grant)
	step(patch)
	if pod.Labels[v1alpha1.EgressLabelKey] != v1alpha1.EgressDenied || !Record(pod, nil, "east").GetEgressDenied() {
		t.Errorf("a claim that denies egress has the labels %v", pod.Labels)
	}
	if got := Read(pod).Hooks; got != grant.Hooks {
		t.Errorf("the hooks are %q", got)
	}
	runs(tenantImage, "containerd://c2")(pod)
	if got := Observe(pod).Progress; got != Up {
		t.Fatalf("swapped container: %s, want Up", got)
	}
	step(StartPatch(pod, noon))
	if got := Read(pod); got.Team != "red/blue" || got.Key != `job "1"` || got.Timeouts.Idle != 2*time.Second ||
		got.Attempt != 2 || got.Proof != "01234567.mac" || got.Incarnation != 7 || got.ContainerID != "containerd://c2" {
		t.Errorf("claimed state %+v", got)
	}
	longer, none := time.Hour, time.Duration(0)
	step(TimeoutsPatch(pod, TimeoutsChange{Idle: &longer, MaxLifetime: &none}))
	step(ActivePatch(pod, noon))
	if got := Read(pod); got.Timeouts.Idle != time.Hour || got.Timeouts.MaxLifetime != 0 || got.Timeouts.FirstActivity != 0 ||
		!got.LastActive.Equal(noon) {
		t.Errorf("changed state %+v", got)
	}
	if got := Recyclable(pod, poolSpec()); !got.Reset {
		t.Fatalf("release: %v", got)
	}
	step(ReleasePatch(pod, poolSpec(), End{StopReason: v1alpha1.SandboxStopReasonReleased}, noon))
	if ResetDone(pod, poolSpec()) {
		t.Error("reset done while the tenant's container is reported")
	}
	runs(idleImage, "containerd://c3")(pod)
	if !ResetDone(pod, poolSpec()) {
		t.Error("reset not done with a new container of the idle image")
	}
	step(IdlePatch(pod, poolSpec(), noon))
	if got := Read(pod); got != before {
		t.Errorf("idle again as %+v, was %+v", got, before)
	}
	if len(pod.Labels) != len(idlePod().Labels) {
		t.Errorf("labels left behind: %v", pod.Labels)
	}
	for key, value := range pod.Annotations {
		if value != "" && key != v1alpha1.TemplateRevisionAnnotationKey && key != v1alpha1.SandboxIdleSinceAnnotationKey {
			t.Errorf("annotation left behind: %s=%s", key, value)
		}
	}
}

func TestClaimLosesToAnotherClaimAndToDeletionOnly(t *testing.T) {
	seen := idlePod()
	patch, _ := mustClaim(t, seen, fullGrant(idleImage))
	other, _ := mustClaim(t, seen, &Grant{Claim: Claim{ID: "other"}, Image: idleImage, Now: noon})

	taken, err := apply(t, seen, other)
	must.Succeed(t, err)
	now := noon
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		lose bool
	}{
		"another claim":   {taken, true},
		"deletion":        {idlePod(func(p *corev1.Pod) { p.DeletionTimestamp = metaTime(now) }), true},
		"same name":       {idlePod(func(p *corev1.Pod) { p.UID = "uid-2" }), true},
		"status write":    {idlePod(func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9"; p.ResourceVersion = "99" }), false},
		"scale-down mark": {idlePod(annotated(v1alpha1.SandboxScaleDownProtectedAnnotationKey, "2026-03-01T11:00:00Z")), false},
	} {
		_, err := apply(t, tc.pod, patch)
		if lost := errors.Is(err, jsonpatch.ErrTestFailed); lost != tc.lose || err != nil && !lost {
			t.Errorf("%s: %v, want lost %v", name, err, tc.lose)
		}
	}
}

func TestALatePatchDoesNotTouchTheNextTenant(t *testing.T) {
	seen := idlePod(holds(Running), runs(tenantImage, "containerd://c2"))
	patch := ReleasePatch(seen, poolSpec(), End{StopReason: v1alpha1.SandboxStopReasonReleased}, noon)
	next := idlePod(holds(Running), runs(tenantImage, "containerd://c9"))
	next.Labels[v1alpha1.SandboxIDLabelKey] = "02zz-east"
	if _, err := apply(t, next, patch); !errors.Is(err, jsonpatch.ErrTestFailed) {
		t.Errorf("release of an earlier sandbox: %v, want a failed test", err)
	}
}

// I6: a sandbox that has timed out by an older view is not ended if a newer write extends it.
func TestI6AnExpiryLosesToActivityAndToNewTimeouts(t *testing.T) {
	seen := idlePod(holds(Running), annotated(v1alpha1.SandboxIdleTimeoutAnnotationKey, "60"))
	patch := ExpirePatch(seen, poolSpec(), End{StopReason: v1alpha1.SandboxStopReasonReleased, Reason: "IdleTimeout"}, noon)
	hour := time.Hour
	for name, tc := range map[string]struct {
		change []byte
		lose   bool
	}{
		"nothing":          {[]byte("[]"), false},
		"activity":         {ActivePatch(seen, noon), true},
		"an idle timeout":  {TimeoutsPatch(seen, TimeoutsChange{Idle: &hour}), true},
		"a lifetime":       {TimeoutsPatch(seen, TimeoutsChange{MaxLifetime: &hour}), true},
		"a status's write": {[]byte(`[{"op":"add","path":"/status/podIP","value":"10.0.0.9"}]`), false},
	} {
		pod, err := apply(t, seen, tc.change)
		must.Succeed(t, err)
		if _, err := apply(t, pod, patch); errors.Is(err, jsonpatch.ErrTestFailed) != tc.lose {
			t.Errorf("%s: %v, want lost %v", name, err, tc.lose)
		}
	}
	next := idlePod(holds(Running))
	next.Labels[v1alpha1.SandboxIDLabelKey] = "02zz-east"
	for name, late := range map[string][]byte{"activity": ActivePatch(seen, noon),
		"timeouts": TimeoutsPatch(seen, TimeoutsChange{Idle: &hour})} {
		if _, err := apply(t, next, late); !errors.Is(err, jsonpatch.ErrTestFailed) {
			t.Errorf("%s of an earlier sandbox: %v, want a failed test", name, err)
		}
	}
}

// A Service that selects the template's labels finds the Pods of the template, whatever labels tenants choose (I14).
func TestI14LabelsOfAClaimStandBelowOnePrefix(t *testing.T) {
	pod, labels := idlePod(), map[string]string{"app": "mine", "tier": "gold"}
	patch, _ := mustClaim(t, pod, &Grant{Claim: Claim{ID: "x"}, Image: idleImage, Labels: labels})
	claimed, err := apply(t, pod, patch)
	must.Succeed(t, err)
	for key, value := range claimed.Labels {
		if before, was := pod.Labels[key]; was && before != value && key != v1alpha1.SandboxPhaseLabelKey {
			t.Errorf("%s is %q, and was %q", key, value, before)
		}
	}
	if claimed.Labels["tier"] != "" || claimed.Labels["tenant.navix.sh/tier"] != "gold" || claimed.Labels["tenant.navix.sh/app"] != "mine" {
		t.Errorf("the Pod has %v", claimed.Labels)
	}
	if got := userLabels(claimed); !maps.Equal(got, labels) {
		t.Errorf("its caller sees %v, gave %v", got, labels)
	}
	// The list of them is an annotation, which may be edited.
	claimed.Annotations[v1alpha1.SandboxManagedLabelKeysAnnotationKey] = ""
	if left := tenantLabels(claimed, &v1alpha1.SandboxPoolSpec{}); len(left) != 2 {
		t.Errorf("when it ends, %v go", left)
	}
}

func TestClaimRefusesLabelsOfTheTemplate(t *testing.T) {
	pod := idlePod()
	pod.Labels["tenant.navix.sh/app"] = "the template's"
	_, _, err := ClaimPatch(pod, &Grant{Claim: Claim{ID: "x"}, Image: idleImage, Labels: map[string]string{"app": "mine"}})
	if !errors.Is(err, ErrLabelTaken) {
		t.Errorf("got %v, want ErrLabelTaken", err)
	}
}

func BenchmarkClaimPatch(b *testing.B) {
	pod, grant := idlePod(), fullGrant(idleImage)
	grant.Metadata, grant.Labels = nil, nil
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := ClaimPatch(pod, grant); err != nil {
			b.Fatal(err)
		}
	}
}
