// SPDX-License-Identifier: Apache-2.0

// Package hosted_test runs a federation of which one cluster has a worker of its own and hosts, in two replicas, those of the other two.
package hosted_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

// hosting has a worker, and the kubeconfigs of the others.
const (
	hosting = "mgmt"
	envName = "hosted"
	// patience bounds every wait.
	patience = 90 * time.Second
)

var hosted = []string{"east", "north"}

// What all tests share.
var (
	atoll    *stack.Stack
	hub      *stack.Client
	replicas []stack.Program
)

func TestMain(m *testing.M) {
	stack.RunSuite("hosted", func(ctx context.Context, dir, logDir string) (code int, err error) {
		binDir := filepath.Join(dir, "bin")
		build := func(ctx context.Context) error { return stack.Build(ctx, binDir, true) }
		set, err := stack.Prepare(ctx, build, plane.Options{}, append(hosted, hosting)...)
		if set != nil {
			defer func() { err = errors.Join(err, set.Down(context.WithoutCancel(ctx))) }()
		}
		if err != nil {
			return 1, err
		}
		if atoll, err = stack.Start(ctx, set, stack.Options{BinDir: binDir, LogDir: logDir, Invited: true, Later: hosted}); err != nil {
			return 1, err
		}
		if hub, err = atoll.HubClient(); err != nil {
			return 1, err
		}
		if replicas, err = atoll.Hosting(ctx, hosting, 2); err != nil {
			return 1, err
		}
		for _, replica := range replicas {
			if err := replica.Start(ctx); err != nil {
				return 1, err
			}
		}
		code = m.Run()
		for _, replica := range replicas {
			err = errors.Join(err, replica.Stop())
		}
		return code, errors.Join(err, atoll.Close())
	})
}
