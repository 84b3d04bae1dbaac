// SPDX-License-Identifier: Apache-2.0

//go:build !kind

package federation_test

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

const (
	// testLimit bounds a test; none comes near it unless it hangs.
	testLimit = 2 * time.Minute
	// patience bounds every wait for convergence. It covers a killed worker's lease (15 s), a reconnect at the end of the
	// back-off (30 s) and a cluster on probation (10 s).
	patience = 75 * time.Second
	// callers claim at once, and keysAtOnce sandboxes are held at once, where a test is about many.
	callers, keysAtOnce = 16, 36
)

// set are the planes.
var set *plane.Set

func bringUp(ctx context.Context, _ string, opts stack.Options) (*stack.Stack, error) {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return stack.Build(groupCtx, opts.BinDir, true) })
	group.Go(func() (err error) {
		set, err = plane.Up(groupCtx, plane.Options{AuditLog: true}, clusters...)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("preparing: %w", err)
	}
	if err := startCollector(&opts); err != nil {
		return nil, err
	}
	// No team has a limit; what it takes to know that is allowed, and used.
	opts.WorkerArgs = append(opts.WorkerArgs, "--team-quotas")
	started, err := stack.Start(ctx, set, opts)
	if err != nil {
		return nil, fmt.Errorf("starting hub and workers: %w", err)
	}
	return started, nil
}

func takeDown(ctx context.Context) error {
	if traces != nil {
		traces.server.Stop()
	}
	if set == nil {
		return nil
	}
	return set.Down(ctx)
}
