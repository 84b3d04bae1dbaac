// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/foreigncontroller"
)

// TestStripPodKeepsWhatIsDecidedBy: a stripped field reads as harmless, so none that I13 depends on may be stripped.
func TestStripPodKeepsWhatIsDecidedBy(t *testing.T) {
	yes, always := true, corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}, Finalizers: []string{"f"}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, HostPID: true, ShareProcessNamespace: &yes, NodeName: "n",
			SecurityContext:  &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmni", Value: "0"}}},
			RuntimeClassName: new("r"), ResourceClaims: []corev1.PodResourceClaim{{Name: "d"}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			Containers: []corev1.Container{{
				Name: "main", Image: "i", RestartPolicy: &always, SecurityContext: &corev1.SecurityContext{Privileged: &yes},
				VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/dev/shm"}},
				Env:          []corev1.EnvVar{{Name: "SECRET", Value: "x"}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "gpu": resource.MustParse("1")},
					Limits:   corev1.ResourceList{"memory": resource.MustParse("1Gi")},
				},
			}},
			InitContainers:      []corev1.Container{{Name: "init", Image: "i"}},
			EphemeralContainers: []corev1.EphemeralContainer{{}},
			Tolerations:         []corev1.Toleration{{Key: "k"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1", ObservedGeneration: 3,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: "c"}},
		},
	}
	stripped, err := stripPod(pod.DeepCopy())
	must.Succeed(t, err)
	want := pod.DeepCopy()
	delete(want.Spec.Containers[0].Resources.Requests, "gpu")
	want.ManagedFields, want.Spec.Containers[0].Env, want.Spec.Tolerations = nil, nil, nil
	if got := stripped.(*corev1.Pod); got.String() != want.String() {
		t.Errorf("kept %v\nwant %v", got, want)
	}
}

// What a pause is decided from, beyond what records show, stays on the few Pods that have one.
func TestStripPodKeepsResourcesOfPausedPods(t *testing.T) {
	cpu := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.SandboxPauseAnnotationKey: "{}"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: cpu}},
			InitContainers: []corev1.Container{{Name: "side", Resources: cpu}}},
		Status: corev1.PodStatus{
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "main", Resources: &cpu}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "side", Resources: &cpu}},
		},
	}
	kept, err := stripPod(pod.DeepCopy())
	if err != nil || kept.(*corev1.Pod).String() != pod.String() {
		t.Errorf("kept %v, %v\nwant %v", kept, err, pod)
	}
	pod.Annotations[v1alpha1.SandboxPauseAnnotationKey] = ""
	stripped, err := stripPod(pod)
	must.Succeed(t, err)
	p := stripped.(*corev1.Pod)
	if p.Status.ContainerStatuses[0].Resources != nil || p.Status.InitContainerStatuses != nil {
		t.Errorf("kept %v of a Pod that is not paused", p)
	}
}

// TestStripKeepsWhoWrote: only unread fields of Envs and pools are stripped. The other writers of a status are read.
func TestStripKeepsWhoWrote(t *testing.T) {
	early, late := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	set := metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}},"f:spec":{"f:replicas":{},"f:template":{"f:spec":{}}}}`)
	fields := []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: set},
		{Manager: "atoll-worker", Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", Time: &early, FieldsV1: set},
		{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "scale", FieldsV1: set},
		{Manager: "sandbox-controller", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", Time: &late, FieldsV1: set},
	}
	metaOf := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "o", ManagedFields: slices.Clone(fields),
			Annotations: map[string]string{"a": "b", corev1.LastAppliedConfigAnnotation: "{}"}}
	}
	pool := &v1alpha1.SandboxPool{ObjectMeta: metaOf(), Spec: v1alpha1.SandboxPoolSpec{Replicas: 3}}
	env := &v1alpha1.SandboxEnv{ObjectMeta: metaOf(), Spec: v1alpha1.SandboxEnvSpec{TemplateRef: v1alpha1.SandboxEnvTemplateRef{Name: "t"}}}
	for _, object := range []client.Object{pool, env} {
		want := object.DeepCopyObject().(client.Object)
		kept := slices.Clone(fields)
		kept[0].FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`)
		kept[1].FieldsV1, kept[2].FieldsV1, kept[3].FieldsV1 = nil, kept[0].FieldsV1, nil
		want.SetManagedFields(kept)
		want.SetAnnotations(map[string]string{"a": "b"})
		got, err := Transform(object)(object)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if write, foreign := foreigncontroller.StatusWrite(object); !foreign || write.Manager != "sandbox-controller" ||
			!write.At.Equal(late.Time) {
			t.Errorf("another controller's write of the status is %v, %t", write, foreign)
		}
	}
	template := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"version": "v"}, "metadata": map[string]any{
		"name": "t", "managedFields": []any{map[string]any{"manager": "m"}},
		"annotations": map[string]any{corev1.LastAppliedConfigAnnotation: "{}"},
	}}}
	if got, err := Transform(template)(template); err != nil || len(template.GetManagedFields()) != 0 || len(template.GetAnnotations()) != 0 ||
		template.GetName() != "t" || template.Object["spec"] == nil {
		t.Errorf("kept %v, %v", got, err)
	}
}

func TestReadFields(t *testing.T) {
	for _, tt := range []struct{ name, fields, want string }{
		{"nothing that is read", `{"f:metadata":{},"f:spec":{"f:mode":{},"f:clusters":{}}}`, ""},
		{"the template of an Env", `{"f:spec":{"f:mode":{},"f:templateRef":{"f:name":{}}}}`, `{"f:spec":{"f:templateRef":{}}}`},
		{"replicas of a pool", `{"f:spec":{".":{},"f:replicas":{}}}`, `{"f:spec":{"f:replicas":{}}}`},
		{"replicas of members", `{"f:spec":{"f:clusters":{".":{},"k:{\"clusterID\":\"east\"}":{"f:members":{
			"k:{\"name\":\"a\"}":{".":{},"f:spec":{"f:replicas":{},"f:template":{}}},
			"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}}}}}`,
			`{"f:spec":{"f:clusters":{"k:{\"clusterID\":\"east\"}":{"f:members":{"k:{\"name\":\"a\"}":{"f:spec":{"f:replicas":{}}}}}}}}`},
		{"not a set", `{"f:spec":`, ""},
	} {
		got := ""
		if kept := readFields(metav1.NewFieldsV1(tt.fields)); kept != nil {
			got = kept.GetRawString()
		}
		if got != tt.want {
			t.Errorf("%s: kept %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestStripSecretKeepsNoSecret: only the existence of a Secret is read.
func TestStripSecretKeepsNoSecret(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "n", Name: "ips-shop", UID: "u", ResourceVersion: "1"}
	secret := &corev1.Secret{ObjectMeta: *meta.DeepCopy(), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{".dockerconfigjson": []byte("x")}}
	secret.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "x"}
	stripped, err := stripSecret(secret)
	if want := (&corev1.Secret{ObjectMeta: meta, Type: secret.Type}); err != nil || !equality.Semantic.DeepEqual(stripped, want) {
		t.Errorf("what is kept is %+v, %v", stripped, err)
	}
}
