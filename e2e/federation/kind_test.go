// SPDX-License-Identifier: Apache-2.0

//go:build kind

package federation_test

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"navix.sh/atoll/e2e/kind"
	"navix.sh/atoll/e2e/stack"
)

const (
	// testLimit bounds a test; none comes near it unless it hangs.
	testLimit = 5 * time.Minute
	// patience bounds every wait for convergence: in addition to the time on planes, it covers a kubelet's start of all of a
	// test's containers, which share this machine.
	patience = 2 * time.Minute
	// callers claim at once, and keysAtOnce sandboxes are held at once, where a test is about many.
	callers, keysAtOnce = 8, 18
)

// set are the clusters.
var set *kind.Set

func bringUp(ctx context.Context, dir string, opts stack.Options) (*stack.Stack, error) {
	images := func(ctx context.Context) ([]string, error) {
		if err := stack.Build(ctx, opts.BinDir, false); err != nil {
			return nil, err
		}
		return stack.BuildImages(ctx, filepath.Join(dir, "images"), true,
			stack.TestImage{Name: poolImage, Args: []string{"-tag=" + poolImage}},
			stack.TestImage{Name: swapImage, Args: []string{"-tag=" + swapImage}})
	}
	var err error
	if set, err = stack.PrepareKind(ctx, images, kind.Options{}, "hub", "worker-a", "worker-b"); err != nil {
		return nil, err
	}
	installed, err := stack.Install(ctx, set, clusters, opts)
	if err != nil {
		return nil, fmt.Errorf("installing hub and workers: %w", err)
	}
	return installed, nil
}

func takeDown(ctx context.Context) error { return set.Down(ctx) }

// checkRights works on planes only: their API servers keep audit logs of all requests.
func checkRights() error { return nil }
