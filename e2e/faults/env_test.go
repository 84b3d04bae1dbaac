// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
)

const (
	namespace = "default"
	envName   = "faults"
	swapImage = "registry.example/python:3.14"
)

// manifest is an Env as its user writes it.
func manifest(env string, replicas int) (string, error) {
	text, err := os.ReadFile("testdata/env.yaml")
	if err != nil {
		return "", fmt.Errorf("reading the Env: %w", err)
	}
	return strings.NewReplacer("ENV", env, "REPLICAS", strconv.Itoa(replicas)).Replace(string(text)), nil
}

// apply applies an Env in a cluster, as users do.
func (w *world) apply(ctx context.Context, cluster, env string, replicas int, how ...string) error {
	text, err := manifest(env, replicas)
	if err != nil {
		return err
	}
	args := append([]string{"apply", "-f", "-"}, how...)
	if out, err := w.Cluster(cluster).KubectlInput(ctx, strings.NewReader(text), args...); err != nil {
		return fmt.Errorf("applying Env %s in %s: %w\n%s", env, cluster, err, out)
	}
	return nil
}

// applyEnv applies the Env for the claims and waits until it is warm in the hub's view.
func (w *world) applyEnv(ctx context.Context) error {
	for _, cluster := range clusters {
		if err := w.apply(ctx, cluster, envName, *podsFlag); err != nil {
			return err
		}
	}
	return w.warm(ctx)
}

// warm waits until the hub sees idle Pods in all clusters.
func (w *world) warm(ctx context.Context) error {
	return wait.Until(ctx, patience, "the Env to be warm", func(ctx context.Context) error {
		env, err := w.hub.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: namespace, Name: envName})
		if err != nil {
			return err
		}
		warm := 0
		for _, c := range env.GetClusters() {
			for _, m := range c.GetMembers() {
				if m.GetReadyIdle() >= int32(*podsFlag/2) {
					warm++
				}
			}
		}
		if warm != len(clusters) {
			return fmt.Errorf("%d of %d clusters are: %v", warm, len(clusters), env)
		}
		return nil
	})
}

// ways of applying the same manifest. The last one takes over what earlier ones of the first kind own.
var applying = [][]string{nil, {"--server-side", "--field-manager=user", "--force-conflicts"}}

// reapply models the users: it applies the Env at every interval, sometimes with another number of replicas, until ctx ends.
func (w *world) reapply(ctx context.Context, random *rand.Rand, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		cluster, how := clusters[random.IntN(len(clusters))], applying[random.IntN(len(applying))]
		scale := *podsFlag + 2*(random.IntN(3)-1)
		applyCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
		// A broken API server accepts no manifests; the last one is applied after the fault.
		_ = w.apply(applyCtx, cluster, envName, scale, how...)
		cancel()
	}
}

const (
	// patience bounds every wait for convergence: it covers a lease (15 s), a reconnect at the end of the back-off (30 s), a
	// cluster on probation (10 s) and a late caller.
	patience = 2 * time.Minute
	// unharmed is much longer than a claim takes that a fault does not touch.
	unharmed = 10 * time.Second
)
