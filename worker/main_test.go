// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFlagsAreChecked(t *testing.T) {
	tests := map[string]struct{ args, want string }{
		"no cluster id":     {"", "--cluster-id is required"},
		"bad cluster id":    {"--cluster-id=East_1", `--cluster-id "East_1" is not valid`},
		"long cluster id":   {"--cluster-id=a123456789012345678901234567890", "is not valid"},
		"hub without port":  {"--cluster-id=east --hub=hub", `--hub "hub" is not valid`},
		"hub without tls":   {"--cluster-id=east --hub=hub:8443 --tls-cert-file=c", "--hub needs --tls-cert-file"},
		"all at once":       {"--hub=hub --namespace=", "--namespace is required"},
		"queue":             {"--cluster-id=east --queue-capacity=0", "--queue-capacity 0 is not valid"},
		"records":           {"--cluster-id=east --history-records=0", "--history-records 0 is not valid"},
		"retention":         {"--cluster-id=east --history-retention=-1h", "--history-retention -1h0m0s is not valid"},
		"peers without tls": {"--cluster-id=east --peer-listen=:1 --peer-address=a:1", "--peer-listen needs --tls-cert-file"},
		"peers nowhere":     {"--cluster-id=east --peer-listen=:1", `--peer-address "" is not valid`},
		"log level":         {"--cluster-id=east --log-level=loud", "--log-level"},
		"kubeconfig":        {"--cluster-id=east --kubeconfig=/does/not/exist", "--kubeconfig"},
		"unknown":           {"--cluster=east", "unknown flag: --cluster"},
		"argument":          {"--cluster-id=east now", "unknown command"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := command()
			cmd.SetArgs(strings.Fields(tt.args))
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q answers %v, want %q", tt.args, err, tt.want)
			}
		})
	}
}

// TestStripPodKeepsWhatIsDecidedBy: a field that is stripped reads as harmless, so none that I13 rests on may go.
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
	if err != nil {
		t.Fatal(err)
	}
	want := pod.DeepCopy()
	delete(want.Spec.Containers[0].Resources.Requests, "gpu")
	want.ManagedFields, want.Spec.Containers[0].Env, want.Spec.Tolerations = nil, nil, nil
	if got := stripped.(*corev1.Pod); got.String() != want.String() {
		t.Errorf("kept %v\nwant %v", got, want)
	}
}
