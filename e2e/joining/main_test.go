// SPDX-License-Identifier: Apache-2.0

// Package joining_test runs a hub with a CA of its own, which clusters join by invitations: certificates of seconds are renewed, and the
// CA is rotated, while callers claim.
package joining_test

import (
	"context"
	"errors"
	"flag"
	"path/filepath"
	"testing"
	"time"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

// patience bounds every wait.
const patience = 90 * time.Second

// clusters joins the federation at its start, late joins in the test.
var clusters, late = []string{"east", "north", "west"}, "south"

var (
	renewals = flag.Int("renewals", 2, "how often each certificate is renewed under load at least")
	rate     = flag.Int("rate", 5, "claims a second, each of which replaces a Pod")
	races    = flag.Bool("races", true, "build hub and workers with the race detector")
	stock    = flag.Int("stock", 15, "Pods of each cluster")
	keep     = flag.Bool("keep", false, "callers under renewals release nothing: for rates at which this machine replaces no Pods")
	lifetime = flag.Duration("lifetime", 30*time.Second, "of certificates; four fifths of it pass between renewals")
)

// What all tests share.
var (
	atoll *stack.Stack
	hub   *stack.Client
)

func lifetimeFlag(d time.Duration) string { return "--cluster-certificate-lifetime=" + d.String() }

func TestMain(m *testing.M) {
	stack.RunSuite("joining", func(ctx context.Context, dir, logDir string) (code int, err error) {
		ctx, cancel := context.WithTimeout(ctx, 40*time.Minute) // the first run on a machine builds Kubernetes
		defer cancel()
		binDir := filepath.Join(dir, "bin")
		build := func(ctx context.Context) error { return stack.Build(ctx, binDir, *races) }
		set, err := stack.Prepare(ctx, build, plane.Options{}, append(clusters, late)...)
		if set != nil {
			defer func() { err = errors.Join(err, set.Down(context.WithoutCancel(ctx))) }()
		}
		if err != nil {
			return 1, err
		}
		atoll, err = stack.Start(ctx, set, stack.Options{
			BinDir: binDir, LogDir: logDir, Invited: true, Later: []string{late},
			HubArgs: []string{lifetimeFlag(time.Hour)}, // of the control
		})
		if err != nil {
			return 1, err
		}
		if hub, err = atoll.HubClient(); err != nil {
			return 1, err
		}
		return m.Run(), atoll.Close()
	})
}
