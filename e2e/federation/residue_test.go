// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// tenant is written on a Pod with a claim, and must be on no Pod afterwards.
const tenant = "tenant-of-the-residue-test"

// I13: a Pod is returned again only if every container was swapped and nothing writable survived that; otherwise it is replaced.
func TestI13_NothingIsLeft(t *testing.T) {
	ctx := testContext(t)
	one := []member{{Cluster: "east", Replicas: 1}}
	closed := newEnvOf(ctx, t, "residue", one, stack.ClosedPod)
	plain := newEnv(ctx, t, "residue-open", one...)
	scratch := newEnvOf(ctx, t, "scratch", one, stack.ClosedPod, stack.ScratchPod(corev1.EmptyDirVolumeSource{}))

	t.Run("a swapped container is reset", func(t *testing.T) {
		first := closed.onlyPod(ctx, t)
		sandbox := closed.claimAs(ctx, t, swapImage)
		used := closed.onlyPod(ctx, t)
		if used.UID != first.UID || containerOf(used) == containerOf(first) {
			t.Fatalf("the swap went from container %s of pod %s to %s of %s", containerOf(first), first.UID, containerOf(used), used.UID)
		}
		closed.mustRelease(ctx, t, hub, sandbox)
		again := closed.waitIdle(ctx, t)
		if again.UID != used.UID {
			t.Errorf("pod %s was replaced by %s, though a reset leaves nothing in it", used.UID, again.UID)
		}
		if containerOf(again) == containerOf(used) {
			t.Errorf("pod %s is idle with the tenant's container %s", again.UID, containerOf(used))
		}
		wantClean(t, again, sandbox)
	})
	t.Run("a container that was not swapped is replaced", func(t *testing.T) {
		wantReplaced(ctx, t, closed, "")
	})
	t.Run("a Pod whose shared memory can be written to is replaced", func(t *testing.T) {
		wantReplaced(ctx, t, plain, swapImage)
	})
	t.Run("a Pod with a writable volume is replaced", func(t *testing.T) {
		wantReplaced(ctx, t, scratch, swapImage)
	})
	mustVerify(ctx, t)
}

func wantReplaced(ctx context.Context, t *testing.T, e *env, image string) {
	t.Helper()
	sandbox := e.claimAs(ctx, t, image)
	e.mustRelease(ctx, t, hub, sandbox)
	after := e.waitIdle(ctx, t)
	if string(after.UID) == sandbox.GetPodUid() {
		t.Errorf("pod %s went from one tenant to idle", after.UID)
	}
	wantClean(t, after, sandbox)
}

func (e *env) claimAs(ctx context.Context, t *testing.T, image string) *sandboxv1.Sandbox {
	t.Helper()
	return e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{
		Image: image, Team: tenant, User: tenant, ClaimKey: unused(tenant),
		Metadata: map[string]string{"who": tenant}, Labels: map[string]string{"who": tenant},
	})
}

// onlyPod is the Env's Pod in east.
func (e *env) onlyPod(ctx context.Context, t *testing.T) *corev1.Pod {
	t.Helper()
	pods, err := e.pods(ctx, "east")
	if err != nil || len(pods) != 1 {
		t.Fatalf("want one Pod, got %s, %v", summary(pods), err)
	}
	return &pods[0]
}

// waitIdle waits until the Env's only Pod can be claimed.
func (e *env) waitIdle(ctx context.Context, t *testing.T) *corev1.Pod {
	t.Helper()
	wait.For(t, patience, "the only Pod to be idle", func(ctx context.Context) error {
		pods, err := e.pods(ctx, "east")
		idle := err == nil && len(pods) == 1 && pods[0].Labels[v1alpha1.SandboxPhaseLabelKey] == v1alpha1.SandboxPhaseIdle
		return wait.If(idle, fmt.Sprint(err, summary(pods)))
	})
	e.waitReady(ctx, t, map[string]int{"east": 1})
	return e.onlyPod(ctx, t)
}

func containerOf(p *corev1.Pod) string {
	if len(p.Status.ContainerStatuses) != 1 {
		return ""
	}
	return p.Status.ContainerStatuses[0].ContainerID
}

// wantClean searches for the tenant in all of the Pod's object.
func wantClean(t *testing.T, p *corev1.Pod, sandbox *sandboxv1.Sandbox) {
	t.Helper()
	if p.Spec.Containers[0].Image != poolImage {
		t.Errorf("pod %s is idle with image %s", p.UID, p.Spec.Containers[0].Image)
	}
	for _, of := range []map[string]string{p.Labels, p.Annotations} {
		for key, value := range of {
			if strings.Contains(value, tenant) || strings.Contains(value, sandbox.GetId()) || strings.Contains(key, v1alpha1.TenantLabelPrefix) {
				t.Errorf("pod %s is idle and carries %s=%q", p.UID, key, value)
			}
		}
	}
}
