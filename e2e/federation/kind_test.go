// SPDX-License-Identifier: Apache-2.0

//go:build kind

package federation_test

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

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
	var archives []string
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if err := stack.Build(groupCtx, opts.BinDir, false); err != nil {
			return err
		}
		archives, err = stack.BuildImages(groupCtx, filepath.Join(dir, "images"), true,
			stack.TestImage{Name: poolImage, Args: []string{"-tag=" + poolImage}},
			stack.TestImage{Name: swapImage, Args: []string{"-tag=" + swapImage}})
		return err
	})
	group.Go(func() (err error) {
		set, err = kind.Up(groupCtx, kind.Options{}, "hub", "worker-a", "worker-b")
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("preparing: %w", err)
	}
	if err := set.Load(ctx, archives...); err != nil {
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
