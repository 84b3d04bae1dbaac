// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// However a running sandbox ends, its record has the reason, and its pool is warm again.
func TestEnds(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, resets, "ends", 1, closed, scratch("4Mi"))
	for _, tc := range []struct {
		name     string
		end      func(context.Context, *testing.T, *sandboxv1.Sandbox)
		stop     v1alpha1.SandboxStopReason
		reason   string // or several, with commas
		exitCode int32
	}{
		{"exit 0", exits("0"), v1alpha1.SandboxStopReasonCompleted, "", 0},
		{"exit 1", exits("1"), v1alpha1.SandboxStopReasonFailed, "Error", 1},
		{"out of memory", takesMemory, v1alpha1.SandboxStopReasonFailed, "OOMKilled", 137},
		{"kubectl delete pod", deletes, v1alpha1.SandboxStopReasonFailed, "PodDeleted", 0},
		{"kubectl delete pod --force", deletesByForce, v1alpha1.SandboxStopReasonFailed, "PodDeleted", 0},
		{"eviction through the API", evicts, v1alpha1.SandboxStopReasonFailed, "EvictionByEvictionAPI", 0},
		// The tenant heeds the signal, and then the kubelet gives no reason, unless its first report is late enough.
		{"eviction by the kubelet", fillsVolume, v1alpha1.SandboxStopReasonFailed, "EndedByNode,Evicted", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sandbox := e.mustClaim(ctx, t, tenantImage)
			mustAsk(ctx, t, resets, sandbox.GetPod(), "/whoami")
			begin := time.Now()
			tc.end(ctx, t, sandbox)
			record := waitEnded(ctx, t, sandbox.GetId())
			figures.add("recorded after "+tc.name, time.Since(begin))
			if record.GetStopReason() != string(tc.stop) || !slices.Contains(strings.Split(tc.reason, ","), record.GetFailureReason()) ||
				record.GetExitCode() != tc.exitCode {
				t.Errorf("the record says %s, %s (%s), exit code %d; want %s, %s, %d", record.GetStopReason(), record.GetFailureReason(),
					record.GetFailureMessage(), record.GetExitCode(), tc.stop, tc.reason, tc.exitCode)
			}
			e.waitWarm(ctx, t)
			figures.add("warm again after "+tc.name, time.Since(begin))
		})
	}
}

func exits(code string) func(context.Context, *testing.T, *sandboxv1.Sandbox) {
	return func(ctx context.Context, t *testing.T, s *sandboxv1.Sandbox) {
		mustAsk(ctx, t, resets, s.GetPod(), "/exit", "code", code)
	}
}

func takesMemory(ctx context.Context, t *testing.T, s *sandboxv1.Sandbox) {
	mustAsk(ctx, t, resets, s.GetPod(), "/oom")
}

func deletes(ctx context.Context, t *testing.T, s *sandboxv1.Sandbox) {
	if out, err := nodes[resets].Kubectl(ctx, "-n", namespace, "delete", "pod", s.GetPod(), "--wait=false"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func deletesByForce(ctx context.Context, t *testing.T, s *sandboxv1.Sandbox) {
	if out, err := nodes[resets].Kubectl(ctx, "-n", namespace, "delete", "pod", s.GetPod(), "--wait=false", "--grace-period=0",
		"--force"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func evicts(ctx context.Context, t *testing.T, s *sandboxv1.Sandbox) {
	core, err := kubernetes.NewForConfig(nodes[resets].Config())
	must.Succeed(t, err)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.GetPod()}}
	must.Succeed(t, core.CoreV1().Pods(namespace).EvictV1(ctx, eviction))
}

// fillsVolume writes more than the volume may hold, which a kubelet notices when it measures volumes.
func fillsVolume(ctx context.Context, t *testing.T, s *sandboxv1.Sandbox) {
	_, err := ask(ctx, resets, s.GetPod(), "/fill", "path", "/scratch/file", "mebibytes", "16")
	must.Succeed(t, err)
}

// What a tenant's container does before any call returned.
func TestEndsBeforeItRuns(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, resets, "ends-early", 1, closed)
	for image, want := range map[string]string{exit0Image: "Completed", exit1Image: "Failed"} {
		// The kubelet may report it running for a moment: then the claim is answered, and the sandbox ends afterwards.
		sandbox, err := e.claim(ctx, image)
		if err != nil {
			t.Logf("%s: the claim answers %v", image, err)
		} else if record := waitEnded(ctx, t, sandbox.GetId()); record.GetStopReason() != want {
			t.Errorf("%s: the record says %s, want %s", image, record.GetStopReason(), want)
		}
		e.waitWarm(ctx, t)
	}
}

// An idle Pod that is deleted or evicted is replaced, and has no record.
func TestIdlePodsAreReplaced(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, resets, "idle", 1, closed)
	for name, end := range map[string]func(context.Context, *testing.T, *sandboxv1.Sandbox){
		"kubectl delete pod": deletes, "eviction through the API": evicts,
	} {
		pod := e.waitWarm(ctx, t)[0]
		begin := time.Now()
		end(ctx, t, &sandboxv1.Sandbox{Pod: pod.Name})
		wait.For(t, patience, "pod "+pod.Name+" to be gone", func(ctx context.Context) error {
			err := kube[resets].Get(ctx, client.ObjectKeyFromObject(&pod), &corev1.Pod{})
			return wait.If(client.IgnoreNotFound(err) == nil && err != nil, "there")
		})
		e.waitWarm(ctx, t)
		figures.add("idle Pod replaced after "+name, time.Since(begin))
	}
}

// A taint evicts everything from the node, Atoll's worker included. It is gone when the sandbox ends, and the next worker
// records the end all the same.
func TestTaint(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, defaults, "taint", 1, closed, lingers(8))
	sandbox := e.mustClaim(ctx, t, tenantImage)
	node := nodes[defaults].Node()
	if out, err := nodes[defaults].Kubectl(ctx, "taint", "node", node, "e2e=drain:NoExecute"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wait.For(t, patience, "the node to be empty", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := kube[defaults].List(ctx, &pods, client.InNamespace("atoll-system"), client.MatchingFields{"spec.nodeName": node}); err != nil {
			return err
		}
		return wait.If(len(pods.Items) == 0, show(pods.Items))
	})
	if out, err := nodes[defaults].Kubectl(ctx, "taint", "node", node, "e2e-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	record := waitEnded(ctx, t, sandbox.GetId())
	if record.GetStopReason() != string(v1alpha1.SandboxStopReasonFailed) || record.GetFailureReason() != "DeletionByTaintManager" {
		t.Errorf("the record says %s, %s (%s)", record.GetStopReason(), record.GetFailureReason(), record.GetFailureMessage())
	}
	e.waitWarm(ctx, t)
}
