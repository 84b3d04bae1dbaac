// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/sandbox/sandboxtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	idleImage   = "registry.test/idle:1"
	tenantImage = "registry.test/tenant:2"
)

// closedSpec is that of a Pod in which nothing outlives a swap.
func closedSpec() corev1.PodSpec {
	spec := corev1.PodSpec{
		NodeName: "node-1", RestartPolicy: corev1.RestartPolicyAlways,
		Containers: []corev1.Container{{Name: "main", Image: idleImage}},
	}
	sandboxtest.Close(&spec)
	return spec
}

// idlePod is ready, on idleImage, and was idle before.
func idlePod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "small-abc", UID: "uid-1", Generation: 3,
			Labels: map[string]string{
				v1alpha1.SandboxPoolLabelKey: "small", v1alpha1.SandboxPhaseLabelKey: "idle",
				v1alpha1.LabelEnv: "demo", "app": "sandbox",
			},
			Annotations: map[string]string{v1alpha1.TemplateRevisionAnnotationKey: "r1"},
		},
		Spec: closedSpec(),
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.7",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Image: idleImage, ContainerID: "containerd://c1", Ready: true,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// runs gives the Pod a running container.
func runs(image, id string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Image = image
		pod.Status.ContainerStatuses[0].Image = image
		pod.Status.ContainerStatuses[0].ContainerID = id
	}
}

// holds makes the Pod a sandbox in the given phase.
func holds(phase Phase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels[v1alpha1.SandboxPhaseLabelKey] = string(phase)
		pod.Labels[v1alpha1.SandboxIDLabelKey] = "01hx-east"
		pod.Labels[v1alpha1.ClaimKeyHashLabelKey] = "0123"
		pod.Labels["tier"] = "gold"
		for key, value := range map[string]string{
			v1alpha1.SandboxIDAnnotationKey:               "01hx-east",
			v1alpha1.ClaimKeyAnnotationKey:                "job-1",
			v1alpha1.ClaimAttemptAnnotationKey:            "2",
			v1alpha1.ClaimIncarnationAnnotationKey:        "7",
			v1alpha1.SandboxClaimedAtAnnotationKey:        "2026-03-01T11:00:00Z",
			v1alpha1.SandboxStartupTimeoutAnnotationKey:   "120",
			v1alpha1.SandboxManagedLabelKeysAnnotationKey: "tier",
			v1alpha1.SandboxMetadataAnnotationKey:         `{"a":"b"}`,
			v1alpha1.LabelTeam:                            "red",
		} {
			pod.Annotations[key] = value
		}
		switch phase {
		case Running:
			pod.Annotations[v1alpha1.SandboxStartedAtAnnotationKey] = "2026-03-01T11:00:00Z"
		case Stopping, Failed:
			pod.Annotations[v1alpha1.SandboxTerminatedAtAnnotationKey] = "2026-03-01T11:30:00Z"
		}
	}
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[key] = value }
}

// labelled is an edit by hand; without a value the label is removed.
func labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if value == "" {
			delete(pod.Labels, key)
			return
		}
		pod.Labels[key] = value
	}
}

func poolSpec() *v1alpha1.SandboxPoolSpec {
	return &v1alpha1.SandboxPoolSpec{EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: idleImage}},
		}},
	}}
}

// golden compares a patch, an operation a line, with testdata.
func golden(t *testing.T, name string, patch []byte) {
	t.Helper()
	var ops []json.RawMessage
	if err := json.Unmarshal(patch, &ops); err != nil {
		t.Fatalf("patch is no JSON list: %v\n%s", err, patch)
	}
	var text bytes.Buffer
	for _, op := range ops {
		text.Write(op)
		text.WriteByte('\n')
	}
	path := filepath.Join("testdata", name+".golden")
	if *update {
		must.Succeed(t, os.WriteFile(path, text.Bytes(), 0o600))
	}
	want, err := os.ReadFile(path)
	must.Succeed(t, err)
	if !bytes.Equal(want, text.Bytes()) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", name, text.Bytes(), want)
	}
}

func metaTime(t time.Time) *metav1.Time { m := metav1.NewTime(t); return &m }
