// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
)

// replicaKilled kills one replica of the hub in the middle of claims with keys. A caller whose connection breaks repeats its call. Each
// key has one sandbox, also when it is asked for again.
func (w *world) replicaKilled(ctx context.Context) (string, error) {
	// Some Pods are left: those that a claim took at the dead replica end first.
	const n, killAfter = 10, 4
	victim := w.stack.Hubs()[1]
	answered := make(chan struct{}, n)
	got := make([]*sandboxv1.Sandbox, n)
	var retries [n]int
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() (err error) {
			if i >= killAfter { // the first ones are answered before
				<-time.After(time.Duration(i-killAfter) * 20 * time.Millisecond)
			}
			got[i], retries[i], err = w.claimAgain(groupCtx, fmt.Sprintf("replica-key-%d", i))
			answered <- struct{}{}
			return err
		})
	}
	for range killAfter {
		<-answered
	}
	killed := time.Now()
	if err := victim.Kill(); err != nil {
		return "", err
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	took := time.Since(killed)
	most := slices.Max(retries[:])
	for i, sandbox := range got {
		again, _, err := w.claimAgain(ctx, fmt.Sprintf("replica-key-%d", i))
		if err != nil {
			return "", err
		}
		if again.GetId() != sandbox.GetId() {
			return "", fmt.Errorf("key replica-key-%d returned %s before and %s after the replica was killed", i, sandbox.GetId(), again.GetId())
		}
	}
	fmt.Fprintf(w.progress, "%s killed after %d claims; the other %d took %d ms, a caller repeated its call %d times at most\n", victim,
		killAfter, n-killAfter, took.Milliseconds(), most)
	if err := w.waitHubs(ctx, len(w.stack.Hubs())-1); err != nil {
		return "", err
	}
	if err := victim.Start(ctx); err != nil {
		return "", err
	}
	if err := w.waitHubs(ctx, len(w.stack.Hubs())); err != nil {
		return "", err
	}
	for _, sandbox := range got {
		if err := w.caller.Release(ctx, w.hub, sandbox); err != nil {
			return "", err
		}
	}
	if err := w.waitWarm(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("kill -9 of %s under %d claims with keys: all returned, each key one sandbox, at most %d retries; %d replicas again",
		victim, n, most, len(w.stack.Hubs())), nil
}

// claimAgain claims with a key until it is answered.
func (w *world) claimAgain(ctx context.Context, key string) (sandbox *sandboxv1.Sandbox, retries int, err error) {
	err = wait.Until(ctx, 30*time.Second, "a sandbox for "+key, func(ctx context.Context) error {
		var err error
		if sandbox, err = w.claim(ctx, w.hub, &sandboxv1.CreateSandboxRequest{ClaimKey: key}); err != nil {
			retries++
		}
		return err
	})
	return sandbox, retries, err
}

// waitHubs waits until the replica that is called is connected to so many, itself included, and all clusters are fresh.
func (w *world) waitHubs(ctx context.Context, want int) error {
	return w.waitFor(ctx, fmt.Sprintf("%d replicas", want), time.Minute, func(ctx context.Context) error {
		list, err := w.hub.ListReplicas(ctx, &sandboxv1.ListReplicasRequest{})
		if err != nil {
			return err
		}
		reachable := 0
		for _, r := range list.GetReplicas() {
			if r.GetReachable() {
				reachable++
			}
		}
		found, err := w.hub.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
		if err != nil {
			return err
		}
		for _, c := range found.GetClusters() {
			if c.GetState() != sandboxv1.ClusterState_FRESH {
				return fmt.Errorf("cluster %s is %s", c.GetId(), c.GetState())
			}
		}
		return wait.If(reachable == want, list.GetReplicas())
	})
}
