// SPDX-License-Identifier: Apache-2.0

//go:build kind

package upgrade_test

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"navix.sh/atoll/e2e/kind"
	"navix.sh/atoll/e2e/stack"
)

const (
	// testLimit bounds the test; it does not come near it unless something hangs.
	testLimit = 20 * time.Minute
	// patience is how long anything may take that is to come true by itself.
	patience = 2 * time.Minute
	// pace is how long one caller takes from one claim to the next: more is more than kubelets that share a small machine
	// with all the rest can replace.
	pace = 3 * time.Second
)

// set are the clusters.
var set *kind.Set

func bringUp(ctx context.Context, dir, logDir string) (*stack.Stack, error) {
	archives := func(ctx context.Context) ([]string, error) { return images(ctx, dir) }
	var err error
	if set, err = stack.PrepareKind(ctx, archives, kind.Options{ConfigDir: "clusters"}, "upgrade-a", "upgrade-b"); err != nil {
		return nil, err
	}
	installed, err := stack.Install(ctx, set, clusters, stack.Options{
		BinDir: new.BinDir, LogDir: logDir, HubAddress: "127.0.0.1:30180", Version: old, Replicas: 2,
	})
	if err != nil {
		return nil, fmt.Errorf("installing hub and workers: %w", err)
	}
	return installed, nil
}

// images makes all that is to be loaded, and the programs that make API keys.
func images(ctx context.Context, dir string) ([]string, error) {
	var archives []string
	for _, version := range []*stack.Version{&old, &new} {
		made, err := version.Images(ctx, filepath.Join(dir, "images-"+version.Name))
		if err != nil {
			return nil, err
		}
		archives = append(archives, made...)
	}
	sandboxes, err := stack.BuildSandboxes(ctx, dir, stack.TestImage{Name: poolImage, Args: []string{"-tag=" + poolImage}},
		stack.TestImage{Name: swapImage, Args: []string{"-tag=" + swapImage}})
	if err != nil {
		return nil, err
	}
	return append(archives, sandboxes), new.Build(ctx, filepath.Join(dir, "bin"))
}

func takeDown(ctx context.Context) error { return set.Down(ctx) }
