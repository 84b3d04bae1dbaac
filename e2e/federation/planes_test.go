// SPDX-License-Identifier: Apache-2.0

//go:build !kind

package federation_test

import (
	"context"
	"fmt"
	"time"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

const (
	// testLimit bounds a test; none comes near it unless it hangs.
	testLimit = 5 * time.Minute
	// patience bounds every wait: a killed worker's lease (15 s), a reconnect after the back-off (30 s), a cluster on probation (10 s).
	patience = 75 * time.Second
	// callers claim at once, and keysAtOnce sandboxes are held at once, where a test is about many.
	callers, keysAtOnce = 16, 36
)

// set are the planes.
var set *plane.Set

func bringUp(ctx context.Context, _ string, opts stack.Options) (*stack.Stack, error) {
	build := func(ctx context.Context) error { return stack.Build(ctx, opts.BinDir, true) }
	var err error
	if set, err = stack.Prepare(ctx, build, plane.Options{AuditLog: true}, clusters...); err != nil {
		return nil, err
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
	return set.Down(ctx)
}
