// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

func waitState(ctx context.Context, t *testing.T, cluster string, want sandboxv1.ClusterState) {
	t.Helper()
	wait.For(t, patience, "cluster "+cluster+" to be "+want.String(), func(ctx context.Context) error {
		c, err := hub.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: cluster})
		return errors.Join(err, wait.If(c.GetState() == want, c.GetState().String()+" "+c.GetMessage()))
	})
}

// I6, I7: a node that hangs until its cluster is given up changes nothing in the other cluster, and ends no sandbox: when it
// recovers, the same process runs in it.
func TestI6_NodePaused(t *testing.T) {
	ctx := testContext(t)
	there, here := newEnv(ctx, t, defaults, "paused", 2, closed), newEnv(ctx, t, resets, "not-paused", 2, closed)
	sandbox := there.mustClaim(ctx, t, tenantImage)
	before := who(ctx, t, defaults, sandbox.GetPod())

	must.Succeed(t, nodes[defaults].PauseNode(ctx))
	resume := sync.OnceFunc(func() { must.Succeed(t, nodes[defaults].ResumeNode(context.Background())) })
	defer resume()
	waitState(ctx, t, defaults, sandboxv1.ClusterState_UNREACHABLE)
	begin := time.Now()
	release(ctx, t, here.mustClaim(ctx, t, tenantImage))
	figures.add("claim with swap and release beside a paused node", time.Since(begin))
	resume()

	begin = time.Now()
	waitState(ctx, t, defaults, sandboxv1.ClusterState_FRESH)
	figures.add("paused node resumed, to claims", time.Since(begin))
	if after := who(ctx, t, defaults, sandbox.GetPod()); after != before {
		t.Errorf("before %+v, after %+v", before, after)
	}
	got, err := hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()})
	if err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Errorf("the sandbox is %v, %v", got, err)
	}
	release(ctx, t, sandbox)
	there.waitWarm(ctx, t)
	here.waitWarm(ctx, t)
}

// I2, I6: the hub's node crashes and comes back at another address. The other cluster's sandboxes are unaffected, a key returns
// the same sandbox, and the sandbox on the node itself ends with a record.
func TestI6_HubsNodeRestarted(t *testing.T) {
	ctx := testContext(t)
	there, here := newEnv(ctx, t, defaults, "restarted-far", 2, closed), newEnv(ctx, t, resets, "restarted-near", 1, closed)
	request := &sandboxv1.CreateSandboxRequest{
		Namespace: namespace, Env: there.name, Image: tenantImage, ClaimKey: "restarted " + time.Now().Format(time.RFC3339Nano),
	}
	far, err := hub.CreateSandbox(ctx, request)
	must.Succeed(t, err)
	before := who(ctx, t, defaults, far.GetPod())
	near := here.mustClaim(ctx, t, tenantImage)

	begin := time.Now()
	must.Succeed(t, nodes[resets].StopNode(ctx))
	must.Succeed(t, nodes[resets].StartNode(ctx))
	waitState(ctx, t, resets, sandboxv1.ClusterState_FRESH)
	waitState(ctx, t, defaults, sandboxv1.ClusterState_FRESH)
	figures.add("the hub's node stopped and started, to claims everywhere", time.Since(begin))

	if after := who(ctx, t, defaults, far.GetPod()); after != before {
		t.Errorf("before %+v, after %+v", before, after)
	}
	again, err := hub.CreateSandbox(ctx, request)
	if err != nil || again.GetId() != far.GetId() {
		t.Errorf("the same key is answered %v, %v, want %s", again, err, far.GetId())
	}
	// A node that is told to stop may signal its containers, and one that heeds it exits with 0: nothing in the API tells that
	// from a tenant that is done.
	record := waitEnded(ctx, t, near.GetId())
	if heeded := record.GetStopReason() == "Completed" && record.GetExitCode() == 0; record.GetStopReason() != "Failed" && !heeded {
		t.Errorf("the record of the sandbox on the node says %s, %s (%s)", record.GetStopReason(), record.GetFailureReason(),
			record.GetFailureMessage())
	}
	release(ctx, t, far)
	there.waitWarm(ctx, t)
	here.waitWarm(ctx, t)
	release(ctx, t, here.mustClaim(ctx, t, tenantImage))
	here.waitWarm(ctx, t)
}
