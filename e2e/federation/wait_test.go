// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	t.Cleanup(cancel)
	return ctx
}

// waitState waits until the hub sees a cluster in one of the states.
func waitState(ctx context.Context, cluster string, states ...sandboxv1.ClusterState) error {
	return wait.Until(ctx, patience, fmt.Sprintf("cluster %s to be %v", cluster, states), func(ctx context.Context) error {
		return inState(ctx, cluster, states...)
	})
}

func inState(ctx context.Context, cluster string, states ...sandboxv1.ClusterState) error {
	c, err := hub.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: cluster})
	return errors.Join(err, wait.If(slices.Contains(states, c.GetState()), cluster+" is "+c.GetState().String()+" "+c.GetMessage()))
}

// heal starts all stopped programs, also those that end meanwhile, and waits until the hub hears all clusters.
func heal(ctx context.Context) error {
	return wait.Until(ctx, patience, "the federation to be healthy", func(ctx context.Context) error {
		for _, p := range programs() {
			if err := revive(ctx, p); err != nil {
				return err
			}
		}
		for _, cluster := range clusters {
			if err := inState(ctx, cluster, sandboxv1.ClusterState_FRESH); err != nil {
				return err
			}
		}
		return nil
	})
}

// revive resumes a program, or starts it again.
func revive(ctx context.Context, p stack.Program) error {
	if !p.Ended() {
		return p.Resume()
	}
	_ = p.Kill() // cleans up after a program that exited; for a killed one it returns an error
	return p.Start(ctx)
}

func programs() []stack.Program {
	all := []stack.Program{atoll.Hub}
	for _, cluster := range clusters {
		all = append(all, atoll.Worker(cluster))
	}
	return all
}

// restart kills a program like a crash, and restarts it.
func restart(ctx context.Context, p stack.Program) error {
	if err := p.Kill(); err != nil {
		return err
	}
	return p.Start(ctx)
}

// mustVerify checks the federation's invariants from outside, after it has settled.
func mustVerify(ctx context.Context, t *testing.T) {
	t.Helper()
	must.Succeed(t, atoll.Verify(ctx))
}
