// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
)

// I6: removing a member from the manifest removes its idle Pods, and no sandbox.
func TestI6_RemovedMember(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "removed", equally(2)...)
	sandbox := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"west"}, RequireClusters: true})

	e.Members = e.Members[:2]
	e.apply(ctx, t, clusters...)
	e.waitReady(ctx, t, e.replicas())
	e.waitPods(ctx, t, "west", 1)
	got, err := hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()})
	if err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Errorf("the sandbox of a removed member is %v, %v", got, err)
	}
	mustVerify(ctx, t)

	e.mustRelease(ctx, t, hub, sandbox)
	e.waitPods(ctx, t, "west", 0)
}

// waitPods waits until the Env has that many Pods in a cluster, of any phase.
func (e *env) waitPods(ctx context.Context, t *testing.T, cluster string, want int) {
	t.Helper()
	wait.For(t, patience, fmt.Sprintf("%d Pods of %s in %s", want, e.Name, cluster), func(ctx context.Context) error {
		pods, err := e.pods(ctx, cluster)
		return errors.Join(err, wait.If(len(pods) == want, summary(pods)))
	})
}
