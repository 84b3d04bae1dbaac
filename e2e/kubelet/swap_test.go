// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import "testing"

// A claim with an image, and the release, each replace the process in the same Pod.
func TestSwapReplacesTheProcess(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, resets, "swap", 1, closed)
	pod := e.waitWarm(ctx, t)[0]
	idle := who(ctx, t, resets, pod.Name)

	sandbox := e.mustClaim(ctx, t, tenantImage)
	tenant := who(ctx, t, resets, pod.Name)
	if sandbox.GetPodUid() != string(pod.UID) || tenant.Hostname != pod.Name {
		t.Errorf("the sandbox is in Pod %s, its process in %s, want both in %s", sandbox.GetPodUid(), tenant.Hostname, pod.UID)
	}
	if idle.Tag != idleImage || tenant.Tag != tenantImage || idle.Boot == tenant.Boot || tenant.PID != 1 {
		t.Errorf("before %+v, after %+v", idle, tenant)
	}

	release(ctx, t, sandbox)
	after := e.waitWarm(ctx, t)[0]
	if after.UID != pod.UID {
		t.Fatalf("pod %s was replaced by %s", pod.UID, after.UID)
	}
	if again := who(ctx, t, resets, pod.Name); again.Tag != idleImage || again.Boot == idle.Boot || again.PID != 1 {
		t.Errorf("first %+v, after the reset %+v", idle, again)
	}
}
