// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

//go:embed manifests/scaling.yaml
var scalingManifest string

//go:embed manifests/quotas.yaml
var quotasManifest string

const (
	scaledCluster = "north"
	scaledEnv     = "elastic"
	scaledPool    = "elastic-north"
	burstSize     = 5
	quotaSize     = 3 // of manifests/quotas.yaml
	quotaWait     = 5 * time.Second
)

// burst makes more concurrent claims than a pool has Pods: it grows until all are served, and shrinks to its floor after them.
func (w *world) burst(ctx context.Context) (string, error) {
	if err := stack.Apply(ctx, w.stack.Cluster(scaledCluster), scalingManifest); err != nil {
		return "", fmt.Errorf("applying the autoscaled Env: %w", err)
	}
	if err := w.waitReplicas(ctx, "1 1"); err != nil {
		return "", err
	}
	if err := w.waitFor(ctx, "the hub to know the autoscaled Env", time.Minute, func(ctx context.Context) error {
		decision, err := w.hub.ExplainEnv(ctx, &sandboxv1.ExplainEnvRequest{Namespace: envNamespace, Name: scaledEnv})
		if err != nil {
			return err
		}
		return wait.If(decision.GetClusterId() == scaledCluster, decision)
	}); err != nil {
		return "", err
	}
	begin := time.Now()
	ids, err := w.claimScaled(ctx, time.Minute)
	if err != nil {
		return "", fmt.Errorf("claiming from a pool of one: %w", err)
	}
	served := time.Since(begin)
	grown, err := w.replicas(ctx)
	if err != nil {
		return "", err
	}
	if err := w.giveBackScaled(ctx, ids); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d claims at a pool of 1 were served in %.1f s; it grew to %s replicas, and is back at 1",
		burstSize, served.Seconds(), strings.Fields(grown)[0]), nil
}

// claimScaled makes a burst of concurrent claims, each with that timeout, and returns the sandboxes of the successful ones.
func (w *world) claimScaled(ctx context.Context, wait time.Duration) ([]string, error) {
	var mu sync.Mutex
	var ids []string
	var errs []error
	var group sync.WaitGroup
	for range burstSize {
		group.Go(func() {
			caller := stack.EnvCaller{Namespace: envNamespace, Env: scaledEnv}
			sandbox, err := caller.Claim(ctx, w.hub, &sandboxv1.CreateSandboxRequest{StartupTimeout: durationpb.New(wait)})
			mu.Lock()
			defer mu.Unlock()
			if errs = append(errs, err); err == nil {
				ids = append(ids, sandbox.GetId())
			}
		})
	}
	group.Wait()
	return ids, errors.Join(errs...)
}

// giveBackScaled releases a burst, and waits until the pool is at its floor.
func (w *world) giveBackScaled(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if err := w.hub.Release(ctx, id); err != nil {
			return err
		}
	}
	return w.waitReplicas(ctx, "1 1")
}

// quota limits the pool's team below a burst's size: that many claims are served, and the pool grows no further.
func (w *world) quota(ctx context.Context) (string, error) {
	cluster := w.stack.Cluster(scaledCluster)
	if err := stack.Apply(ctx, cluster, quotasManifest); err != nil {
		return "", fmt.Errorf("applying the teams' quotas: %w", err)
	}
	ids, refusals := w.claimScaled(ctx, quotaWait)
	if len(ids) != quotaSize {
		return "", errors.Join(fmt.Errorf("%d of %d claims were served with a quota of %d", len(ids), burstSize, quotaSize), refusals)
	}
	reason := problem.FromError(refusals).Reason
	grown, err := w.replicas(ctx)
	if err != nil {
		return "", err
	}
	if held := strings.Fields(grown)[0]; held != strconv.Itoa(quotaSize) {
		return "", fmt.Errorf("pool %s has %s replicas with a quota of %d", scaledPool, held, quotaSize)
	}
	if err := w.giveBackScaled(ctx, ids); err != nil {
		return "", err
	}
	if out, err := cluster.KubectlInput(ctx, strings.NewReader(quotasManifest), "delete", "-f", "-"); err != nil {
		return "", fmt.Errorf("taking the quotas back: %w\n%s", err, out)
	}
	return fmt.Sprintf("%d of %d claims served, the pool stays at %d replicas; the others waited %s and got %s", len(ids), burstSize,
		quotaSize, quotaWait, reason), nil
}

// replicas returns the desired replicas and the idle Pods.
func (w *world) replicas(ctx context.Context) (string, error) {
	return w.stack.Cluster(scaledCluster).Kubectl(ctx, "-n", envNamespace, "get", "sandboxpool", scaledPool,
		"-o", "jsonpath={.spec.replicas} {.status.idleReplicas}")
}

func (w *world) waitReplicas(ctx context.Context, want string) error {
	return w.waitFor(ctx, fmt.Sprintf("pool %s to have %s replicas and idle Pods", scaledPool, want), time.Minute,
		func(ctx context.Context) error {
			got, err := w.replicas(ctx)
			if err != nil {
				return err
			}
			return wait.If(strings.TrimSpace(got) == want, got)
		})
}
