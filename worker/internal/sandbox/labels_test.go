// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"maps"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

// I1, I13: an edited label of a claimed Pod changes neither its phase nor who may get it.
func TestI13_APhaseEditedByHandIsNotBelieved(t *testing.T) {
	for _, phase := range []Phase{Starting, Running, Stopping, Failed} {
		for _, edited := range []string{"", "odd", "idle", "starting", "running", "stopping", "failed"} {
			want := phase
			switch {
			case phase == Stopping && edited != "stopping":
				want = Failed // and is replaced: whether it was being reset is not asked
			case phase == Failed && edited == "stopping":
				want = Stopping // and not reset: sandbox.Recyclable asks for the images that a release writes
			}
			pod := idlePod(holds(phase), labelled(v1alpha1.SandboxPhaseLabelKey, edited))
			if got := PhaseOf(pod); got != want {
				t.Errorf("%s, labelled %q: %s", phase, edited, got)
			}
			if Claimable(pod, node()).OK() {
				t.Errorf("%s, labelled %q: is handed out", phase, edited)
			}
			wrong := map[string]string(nil)
			if edited != string(want) {
				wrong = map[string]string{v1alpha1.SandboxPhaseLabelKey: string(want)}
			}
			if got := Mislabelled(pod); !maps.Equal(got, wrong) {
				t.Errorf("%s, labelled %q: mislabelled %v, want %v", phase, edited, got, wrong)
			}
		}
	}
	for _, label := range []string{"", "odd", "idle", "running"} {
		if got := PhaseOf(idlePod(labelled(v1alpha1.SandboxPhaseLabelKey, label))); got != Phase(label) {
			t.Errorf("without a sandbox, labelled %q: %s", label, got)
		}
	}
	stripped := idlePod(holds(Running), labelled(v1alpha1.SandboxPhaseLabelKey, "idle"), labelled(v1alpha1.SandboxIDLabelKey, ""),
		annotated(v1alpha1.SandboxIDAnnotationKey, ""))
	if got := PhaseOf(stripped); got != "" || Claimable(stripped, node()).OK() {
		t.Errorf("a Pod that has lost its sandbox and looks idle is in phase %q", got)
	}
}

// A transition of a Pod whose label was edited tests the label as it is, and corrects it.
func TestPatchesOfAnEditedPod(t *testing.T) {
	for _, edited := range []string{"", "odd", "idle"} {
		pod := idlePod(holds(Running), runs(tenantImage, "containerd://c2"), labelled(v1alpha1.SandboxPhaseLabelKey, edited))
		body := ReleasePatch(pod, poolSpec(), End{StopReason: v1alpha1.SandboxStopReasonReleased}, noon)
		if got, err := apply(t, pod, body); err != nil || PhaseOf(got) != Stopping ||
			got.Annotations[v1alpha1.SandboxStopReasonAnnotationKey] != "Released" {
			t.Errorf("labelled %q: %v after the release, %v", edited, got, err)
		}
	}
	// A claim that has not seen the previous one.
	patch, _, err := ClaimPatch(idlePod(), &Grant{Claim: Claim{ID: "01hy-east"}, Image: idleImage, Now: noon})
	must.Succeed(t, err)
	edited := idlePod(holds(Running), labelled(v1alpha1.SandboxPhaseLabelKey, "idle"))
	if _, err := apply(t, edited, patch); !errors.Is(err, jsonpatch.ErrTestFailed) {
		t.Errorf("a Pod with a sandbox that was labelled idle is claimed: %v", err)
	}
}

func TestPoolOf(t *testing.T) {
	owned := func(kind, version, name string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, Controller: new(true)}}
		}
	}
	ours := owned("SandboxPool", v1alpha1.GroupVersion.String(), "small")
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"no owner":                {idlePod(), "small"},
		"owner and label":         {idlePod(ours), "small"},
		"no label":                {idlePod(ours, labelled(v1alpha1.SandboxPoolLabelKey, "")), "small"},
		"another pool's label":    {idlePod(ours, labelled(v1alpha1.SandboxPoolLabelKey, "big")), "small"},
		"another kind of owner":   {idlePod(owned("ReplicaSet", "apps/v1", "rs")), "small"},
		"a kind of another group": {idlePod(owned("SandboxPool", "example.org/v1", "other")), "small"},
		"neither":                 {idlePod(labelled(v1alpha1.SandboxPoolLabelKey, "")), ""},
	} {
		if got := PoolOf(tt.pod); got.Name != tt.want || got.Namespace != "default" {
			t.Errorf("%s: %s", name, got)
		}
	}
	edited := idlePod(ours, labelled(v1alpha1.SandboxPoolLabelKey, "big"))
	if got := Mislabelled(edited); !maps.Equal(got, map[string]string{v1alpha1.SandboxPoolLabelKey: "small"}) {
		t.Errorf("another pool's label: mislabelled %v", got)
	}
}
