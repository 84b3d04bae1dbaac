// SPDX-License-Identifier: Apache-2.0

//go:build !kind

package upgrade_test

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"time"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

const (
	// testLimit bounds the test; it does not come near it unless something hangs.
	testLimit = 10 * time.Minute
	// patience is how long anything may take that is to come true by itself.
	patience = time.Minute
	// pace is how long one caller takes from one claim to the next.
	pace = 400 * time.Millisecond
)

var hubs = flag.Int("hubs", 1, "replicas of the hub; several are replaced one at a time, and work with those that are not yet")

// set are the planes.
var set *plane.Set

func bringUp(ctx context.Context, dir, logDir string) (*stack.Stack, error) {
	build := func(ctx context.Context) error {
		// One after the other: what they have in common is compiled once.
		if err := old.Build(ctx, filepath.Join(dir, "bin-old")); err != nil {
			return err
		}
		return new.Build(ctx, filepath.Join(dir, "bin-new"))
	}
	var err error
	if set, err = stack.Prepare(ctx, build, plane.Options{}, clusters...); err != nil {
		return nil, err
	}
	started, err := stack.Start(ctx, set, stack.Options{BinDir: old.BinDir, LogDir: logDir, Hubs: *hubs})
	if err != nil {
		return nil, fmt.Errorf("starting hub and workers: %w", err)
	}
	return started, nil
}

func takeDown(ctx context.Context) error { return set.Down(ctx) }
