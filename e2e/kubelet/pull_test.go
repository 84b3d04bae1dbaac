// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"context"
	"strings"
	"testing"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

// A claim with an image that cannot be pulled fails with that reason, long before its timeout; its Pod is replaced, and the
// other Pods of the pool are unchanged.
func TestPullFails(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, resets, "pull", 2, closed)
	before := map[string]bool{}
	for _, pod := range e.waitWarm(ctx, t) {
		before[string(pod.UID)] = true
	}
	begin := time.Now()
	_, err := e.claim(ctx, missingImage)
	took := time.Since(begin)
	figures.add("claim with an image that cannot be pulled, to its answer", took)
	p := problem.FromError(err)
	if p == nil || p.Reason != problem.Invalid || !strings.Contains(p.Message, "ImagePullBackOff") || took > time.Minute {
		t.Errorf("after %s the claim answers %v", took, err)
	}
	kept := 0
	for _, pod := range e.waitWarm(ctx, t) {
		if before[string(pod.UID)] {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("%d of 2 Pods are the same as before, want 1", kept)
	}
}

// A caller that does not wait sees in the sandbox what it waits for.
func TestPullFailureIsShown(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, resets, "pull-shown", 1, closed)
	sandbox, err := hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		Namespace: namespace, Env: e.name, Image: missingImage, Wait: sandboxv1.CreateSandboxRequest_ASSIGNED,
	})
	must.Succeed(t, err)
	wait.For(t, patience, "the Pod to say that the image cannot be pulled", func(ctx context.Context) error {
		pods := e.pods(ctx, t)
		return wait.If(strings.Contains(show(pods), "ErrImagePull"), show(pods))
	})
	record := waitEnded(ctx, t, sandbox.GetId())
	if record.GetStopReason() != "Failed" || record.GetFailureReason() != "ImagePullBackOff" {
		t.Errorf("the record says %s, %s (%s)", record.GetStopReason(), record.GetFailureReason(), record.GetFailureMessage())
	}
	e.waitWarm(ctx, t)
}
