// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

//go:embed manifests/scaling.yaml
var scalingManifest []byte

const (
	scaledCluster = "north"
	scaledEnv     = "elastic"
	scaledPool    = "elastic-north"
	burstSize     = 5
)

// burst claims more at once than a pool has: it grows until all are served, and shrinks to its floor when they are over.
func (w *world) burst(ctx context.Context) (string, error) {
	cluster := w.stack.Cluster(scaledCluster)
	if out, err := cluster.KubectlInput(ctx, bytes.NewReader(scalingManifest), "apply", "-f", "-"); err != nil {
		return "", fmt.Errorf("applying the autoscaled Env: %w\n%s", err, out)
	}
	if err := w.waitReplicas(ctx, "1 1"); err != nil {
		return "", err
	}
	if err := w.waitFor(ctx, "the hub to know the autoscaled Env", time.Minute, func(ctx context.Context) (bool, string) {
		decision, err := w.hub.ExplainEnv(ctx, &sandboxv1.ExplainEnvRequest{Namespace: envNamespace, Name: scaledEnv})
		if err != nil {
			return false, err.Error()
		}
		return decision.GetClusterId() == scaledCluster, decision.String()
	}); err != nil {
		return "", err
	}
	begin := time.Now()
	ids := make([]string, burstSize)
	var group errgroup.Group
	for i := range ids {
		group.Go(func() error {
			sandbox, err := w.hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
				Namespace: envNamespace, Env: scaledEnv, FirstActivityTimeout: durationpb.New(0),
			})
			ids[i] = sandbox.GetId()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return "", fmt.Errorf("claiming from a pool of one: %w", err)
	}
	served := time.Since(begin)
	grown, err := w.replicas(ctx)
	if err != nil {
		return "", err
	}
	for _, id := range ids {
		if _, err := w.hub.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: id}); err != nil {
			return "", fmt.Errorf("releasing %s: %w", id, err)
		}
	}
	if err := w.waitReplicas(ctx, "1 1"); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d claims at a pool of 1 were served in %.1f s; it grew to %s replicas, and is back at 1",
		burstSize, served.Seconds(), strings.Fields(grown)[0]), nil
}

// replicas are the wanted ones and the Pods that are idle.
func (w *world) replicas(ctx context.Context) (string, error) {
	return w.stack.Cluster(scaledCluster).Kubectl(ctx, "-n", envNamespace, "get", "sandboxpool", scaledPool,
		"-o", "jsonpath={.spec.replicas} {.status.idleReplicas}")
}

func (w *world) waitReplicas(ctx context.Context, want string) error {
	return w.waitFor(ctx, fmt.Sprintf("pool %s to have %s replicas and idle Pods", scaledPool, want), time.Minute,
		func(ctx context.Context) (bool, string) {
			got, err := w.replicas(ctx)
			if err != nil {
				return false, err.Error()
			}
			return strings.TrimSpace(got) == want, got
		})
}
