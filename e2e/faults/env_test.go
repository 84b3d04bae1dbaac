// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	namespace = "default"
	envName   = "faults"
	swapImage = "registry.example/python:3.14"
)

// envOf is an Env with Pods that are reset after a claim with another image, and replaced after one with their own.
func envOf(name string, replicas int) stack.Env {
	e := stack.Env{
		Name: name, Template: envName, Image: "registry.example/python:3.13", Port: 8000, AllowedImages: "registry.example/python",
		Pod: []func(*corev1.PodSpec){stack.ClosedPod},
	}
	for _, cluster := range clusters {
		e.Members = append(e.Members, stack.Member{Cluster: cluster, Replicas: replicas})
	}
	return e
}

// apply applies an Env in a cluster, as users do.
func (w *world) apply(ctx context.Context, cluster, env string, replicas int, how ...string) error {
	if err := envOf(env, replicas).Apply(ctx, w.Cluster(cluster), how...); err != nil {
		return fmt.Errorf("in %s: %w", cluster, err)
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
		ready, err := w.hub.ReadyIdle(ctx, namespace, envName)
		cold := func(cluster string) bool { return ready[cluster] < *podsFlag/2 }
		return errors.Join(err, wait.If(!slices.ContainsFunc(clusters, cold), ready))
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
	// patience bounds every wait: a lease (15 s), a reconnect after the back-off (30 s), a cluster on probation (10 s), a late caller.
	patience = 2 * time.Minute
	// unharmed is much longer than a claim takes that a fault does not touch.
	unharmed = 10 * time.Second
)
