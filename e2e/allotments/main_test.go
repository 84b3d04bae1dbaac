// SPDX-License-Identifier: Apache-2.0

// Package allotments_test runs a hub with --allotments and workers in two clusters: the maxReplicas of a scaling group is for both
// together (I9), and so is its minReplicas. While it runs, what the clusters hold is counted all the time. Then the hub takes its catalogue
// from one of the clusters.
package allotments_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

var (
	clusters = []string{"east", "north"}
	set      *plane.Set
	atoll    *stack.Stack
	hub      *stack.Client
	kube     map[string]client.WithWatch
)

func TestMain(m *testing.M) {
	stack.RunSuite("allotments", func(ctx context.Context, dir, logDir string) (code int, err error) {
		ctx, cancel := context.WithTimeout(ctx, 40*time.Minute)
		defer cancel()
		opts := stack.Options{BinDir: filepath.Join(dir, "bin"), LogDir: logDir, HubArgs: []string{"--allotments"}}
		build := func(ctx context.Context) error { return stack.Build(ctx, opts.BinDir, true) }
		set, err = stack.Prepare(ctx, build, plane.Options{}, clusters...)
		defer func() { err = errors.Join(err, set.Down(context.WithoutCancel(ctx))) }()
		if err != nil {
			return 1, err
		}
		if atoll, err = stack.Start(ctx, set, opts); err != nil {
			return 1, err
		}
		if hub, err = atoll.HubClient(); err != nil {
			return 1, err
		}
		if kube, err = atoll.Kubes(); err != nil {
			return 1, err
		}
		code = m.Run()
		return code, errors.Join(atoll.Verify(ctx), atoll.Close())
	})
}
