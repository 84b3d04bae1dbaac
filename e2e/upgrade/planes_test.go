// SPDX-License-Identifier: Apache-2.0

//go:build !kind

package upgrade_test

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

const (
	// testLimit bounds the test; it does not come near it unless something hangs.
	testLimit = 5 * time.Minute
	// patience is how long anything may take that is to come true by itself.
	patience = time.Minute
	// pace is how long one caller takes from one claim to the next.
	pace = 400 * time.Millisecond
)

// set are the planes.
var set *plane.Set

func bringUp(ctx context.Context, dir, logDir string) (*stack.Stack, error) {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		// One after the other: what they have in common is compiled once.
		if err := old.Build(groupCtx, filepath.Join(dir, "bin-old")); err != nil {
			return err
		}
		return new.Build(groupCtx, filepath.Join(dir, "bin-new"))
	})
	group.Go(func() (err error) {
		set, err = plane.Up(groupCtx, plane.Options{}, clusters...)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("preparing: %w", err)
	}
	started, err := stack.Start(ctx, set, stack.Options{BinDir: old.BinDir, LogDir: logDir})
	if err != nil {
		return nil, fmt.Errorf("starting hub and workers: %w", err)
	}
	return started, nil
}

func takeDown(ctx context.Context) error {
	if set == nil {
		return nil
	}
	return set.Down(ctx)
}
