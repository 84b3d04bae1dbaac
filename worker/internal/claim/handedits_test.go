// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// claimedPod is a Pod whose sandbox runs, newer than all before.
func (s *station) claimedPod(name, id string) *corev1.Pod {
	pod := s.idlePod(name)
	pod.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxPool", Name: "p", Controller: new(true)},
	}
	pod.Labels[v1alpha1.SandboxPhaseLabelKey] = string(sandbox.Running)
	pod.Labels[v1alpha1.SandboxIDLabelKey] = id
	now := s.opts.Time.Now().UTC().Format(time.RFC3339)
	pod.Annotations = map[string]string{
		v1alpha1.SandboxIDAnnotationKey: id, v1alpha1.SandboxClaimedAtAnnotationKey: now, v1alpha1.SandboxStartedAtAnnotationKey: now,
		v1alpha1.SandboxIdleTimeoutAnnotationKey: "3600",
	}
	return pod
}

// edited is a Pod after somebody has changed it.
func (s *station) edited(pod *corev1.Pod, edit func(*corev1.Pod)) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.ResourceVersion = s.idlePod("").ResourceVersion
	edit(pod)
	return pod
}

// I1, I6, I13: labels that are edited by hand hide no sandbox and hand none out. It keeps its timeouts, and can be released.
func TestI13_LabelsEditedByHandHideNoSandbox(t *testing.T) {
	const id = "01hx-east"
	for name, edit := range map[string]func(*corev1.Pod){
		"an odd phase":          func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxPhaseLabelKey] = "odd" },
		"no phase":              func(p *corev1.Pod) { delete(p.Labels, v1alpha1.SandboxPhaseLabelKey) },
		"idle":                  func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxPhaseLabelKey] = "idle" },
		"failed":                func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxPhaseLabelKey] = "failed" },
		"no sandbox":            func(p *corev1.Pod) { delete(p.Labels, v1alpha1.SandboxIDLabelKey) },
		"another sandbox":       func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxIDLabelKey] = "01hy-east" },
		"no pool":               func(p *corev1.Pod) { delete(p.Labels, v1alpha1.SandboxPoolLabelKey) },
		"another pool":          func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxPoolLabelKey] = "q" },
		"idle, and of no pool":  func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.SandboxPhaseLabelKey: "idle"} },
		"no labels that matter": func(p *corev1.Pod) { p.Labels = map[string]string{} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStation(t, 8)
				pod := s.claimedPod("a", id)
				s.see(pod)
				s.see(s.edited(pod, edit))
				if got := s.stats(); got.ReadyIdle != 0 {
					t.Errorf("it can be handed out: %+v", got)
				}
				if n := s.timeouts.Len(); n != 1 {
					t.Errorf("%d sandboxes with timeouts", n)
				}
				if s.opts.History.Has(id) {
					t.Error("it is recorded as ended")
				}
				if got, body, _, err := s.prepareEnd(id, canceledEnd("", "")); got == nil || len(body) == 0 || err != nil {
					t.Errorf("a release writes nothing: %v", err)
				}
				s.see(s.edited(pod, func(*corev1.Pod) {}))
				if s.wasSetBack() {
					t.Error("put back, it is taken for an etcd that was set back")
				}
			})
		})
	}
}

// A sandbox whose Pod shows nothing of it any more is recorded, and its Pod is not idle.
func TestASandboxThatWasTakenOffItsPodIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		pod := s.claimedPod("a", "01hx-east")
		s.see(pod)
		s.see(s.edited(pod, func(p *corev1.Pod) {
			delete(p.Labels, v1alpha1.SandboxIDLabelKey)
			delete(p.Annotations, v1alpha1.SandboxIDAnnotationKey)
			p.Labels[v1alpha1.SandboxPhaseLabelKey] = "idle"
		}))
		record, err := s.recorded(t.Context(), "01hx-east")
		if err != nil || record.GetStopReason() != "Failed" || record.GetFailureReason() != "IdentityLost" {
			t.Errorf("recorded as %v, %v", record, err)
		}
		if got := s.stats(); got.ReadyIdle != 0 {
			t.Errorf("it can be handed out: %+v", got)
		}
	})
}

// A Pod that has lost its pool's label and its owner at once gets the label back, by which the pool finds it.
func TestASandboxWithoutAPoolIsGivenItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		pod := s.claimedPod("a", "01hx-east")
		s.see(pod)
		lost := s.edited(pod, func(p *corev1.Pod) {
			delete(p.Labels, v1alpha1.SandboxPoolLabelKey)
			p.OwnerReferences = nil
		})
		api := fake.NewClientset(lost).CoreV1()
		s.opts.Pods.client = api
		s.see(lost)
		got, err := api.Pods("default").Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got.Labels, pod.Labels) {
			t.Errorf("labels %v, want %v", got.Labels, pod.Labels)
		}
		if s.opts.History.Has("01hx-east") || s.byID["01hx-east"] == nil {
			t.Error("the sandbox is taken to have ended")
		}
	})
}
