// SPDX-License-Identifier: Apache-2.0

//go:build kind && policies

package kubelet_test

import (
	"context"
	"errors"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// errReached and errKept tell that a sandbox reached, or did not reach, what it should not or should have.
var (
	errReached = errors.New("the sandbox reaches the cluster's DNS")
	errKept    = errors.New("the sandbox does not reach the cluster's DNS")
)

// I14: a sandbox reaches nothing of the cluster's network but what its pool's annotation egress lists, and one that was claimed with
// denyEgress not even that. It needs a CNI that enforces NetworkPolicies, such as kindnet of kind's own node image.
func TestI14_TheNetworkOfASandboxIsClosed(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, resets, "policy", 2)
	sandbox := e.mustClaim(ctx, t, idleImage)
	mustAsk(ctx, t, resets, sandbox.GetPod(), "/whoami")
	address, err := nodes[resets].Kubectl(ctx, "get", "service", "-n", "kube-system", "kube-dns", "-o", "jsonpath={.spec.clusterIP}")
	must.Succeed(t, err)
	reachesFrom := func(pod string, want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			switch _, err := ask(ctx, resets, pod, "/dial", "to", address+":53"); {
			case err == nil && !want:
				return errReached
			case err != nil && want:
				return errors.Join(errKept, err)
			}
			return nil
		}
	}
	reaches := func(want bool) func(context.Context) error { return reachesFrom(sandbox.GetPod(), want) }
	annotate := func(with string) {
		t.Helper()
		_, err := nodes[resets].Kubectl(ctx, "annotate", "sandboxpools", "-n", namespace, e.name, "--overwrite", with)
		must.Succeed(t, err)
	}
	wait.For(t, patience, "the network to be closed by default", reaches(false))
	annotate("agentbox.navix.sh/egress=dns")
	wait.For(t, patience, "the annotation to open what it lists", reaches(true))
	closed, err := stack.EnvCaller{Namespace: namespace, Env: e.name}.Claim(ctx, hub, &sandboxv1.CreateSandboxRequest{DenyEgress: true})
	must.Succeed(t, err)
	wait.For(t, patience, "a sandbox without egress to reach nothing", reachesFrom(closed.GetPod(), false))
	must.Succeed(t, reaches(true)(ctx))
	annotate("agentbox.navix.sh/egress-")
	wait.For(t, patience, "the network to be closed again", reaches(false))
}
