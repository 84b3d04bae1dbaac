// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
)

const demoKey = "demo-key-1"

// localClaims is how many claims each worker serves while the hub is down.
const localClaims = 2

// hubDown makes a keyed claim, kills the hub, and claims at the workers' own addresses.
func (w *world) hubDown(ctx context.Context) (string, error) {
	sandbox, err := w.claim(ctx, w.hub, &sandboxv1.CreateSandboxRequest{ClaimKey: demoKey})
	if err != nil {
		return "", err
	}
	w.keyed = sandbox
	if err := w.stack.Hub.Kill(); err != nil {
		return "", err
	}
	for _, cluster := range clusters {
		for range localClaims {
			local, err := w.claim(ctx, w.local[cluster], &sandboxv1.CreateSandboxRequest{})
			if err != nil {
				return "", fmt.Errorf("in %s: %w", cluster, err)
			}
			if local.GetClusterId() != cluster {
				return "", fmt.Errorf("the worker of %s answered a sandbox of %s", cluster, local.GetClusterId())
			}
			w.hubDownOK++
		}
	}
	return fmt.Sprintf("kill -9; %d local claims answered without it", w.hubDownOK), nil
}

// hubBack restarts the hub: it must rebuild its view from the workers, and the key must return the same sandbox.
func (w *world) hubBack(ctx context.Context) (string, error) {
	if err := w.stack.Hub.Start(ctx); err != nil {
		return "", err
	}
	begin := time.Now()
	want := map[string]int{"east": 6 - localClaims, "north": 4 - localClaims, "west": 8 - localClaims}
	want[w.keyed.GetClusterId()]--
	if err := w.waitReady(ctx, "the hub's view", time.Minute, want); err != nil {
		return "", err
	}
	rebuilt := time.Since(begin)
	again, err := w.claim(ctx, w.hub, &sandboxv1.CreateSandboxRequest{ClaimKey: demoKey})
	if err != nil {
		return "", err
	}
	if again.GetId() != w.keyed.GetId() || again.GetPodUid() != w.keyed.GetPodUid() {
		return "", fmt.Errorf("the key answered %s before and %s now", w.keyed.GetId(), again.GetId())
	}
	w.hubRecovered = true
	return fmt.Sprintf("view rebuilt after %d ms; key %q is still %s", rebuilt.Milliseconds(), demoKey, again.GetId()), nil
}

// cutOff freezes the worker of west: its connection stays open without responses, the worst kind of failure.
func (w *world) cutOff(ctx context.Context) (detail string, err error) {
	if err := w.stack.Worker("west").Pause(); err != nil {
		return "", err
	}
	const n = 4
	var slowest time.Duration
	for range n {
		begin := time.Now()
		// The claim asks for west first, which cannot respond.
		sandbox, err := w.claim(ctx, w.hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"west"}})
		if err != nil {
			return "", err
		}
		if sandbox.GetClusterId() == "west" {
			return "", fmt.Errorf("%s came from the cluster that is cut off", sandbox.GetId())
		}
		slowest = max(slowest, time.Since(begin))
	}
	if err := w.waitState(ctx, sandboxv1.ClusterState_SUSPECT, sandboxv1.ClusterState_UNREACHABLE); err != nil {
		return "", err
	}
	if err := w.stack.Worker("west").Resume(); err != nil {
		return "", err
	}
	if err := w.waitState(ctx, sandboxv1.ClusterState_FRESH); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d claims that preferred west answered elsewhere, slowest %d ms; west is fresh again", n, slowest.Milliseconds()), nil
}

// waitState waits until the hub sees west in one of the states.
func (w *world) waitState(ctx context.Context, states ...sandboxv1.ClusterState) error {
	return w.waitFor(ctx, fmt.Sprintf("west to be %v", states), time.Minute, func(ctx context.Context) error {
		cluster, err := w.hub.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: "west"})
		if err != nil {
			return err
		}
		return wait.If(slices.Contains(states, cluster.GetState()), cluster.GetState())
	})
}
