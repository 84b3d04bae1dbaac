// SPDX-License-Identifier: Apache-2.0

// Package federation_test runs Atoll as its users do, a hub and three workers in three clusters, injects faults, and checks the
// invariants. A test's name has its invariant's number.
//
// Clusters are planes, and programs processes of this machine; with the build tag kind they are kind clusters, with programs in
// containers that the charts installed. Tests see no difference. All tests share one set-up. A test has its own Env, heals its
// faults, and leaves no Pod behind. All programs are built with the race detector; the suite searches their logs at the end.
package federation_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/stack"
)

// clusters are the ids of the clusters. The hub is in the first, where it runs in one at all.
var clusters = []string{"east", "north", "west"}

// What all tests share.
var (
	atoll  *stack.Stack
	hub    *stack.Client
	rest   *http.Client // of the hub
	local  = map[string]*stack.Client{}
	kube   map[string]client.WithWatch // live, no cache
	binDir string
)

func TestMain(m *testing.M) {
	stack.RunSuite("federation", func(ctx context.Context, dir, logDir string) (code int, err error) {
		// The first run on a machine builds Kubernetes, or helm.
		ctx, cancel := context.WithTimeout(ctx, 40*time.Minute)
		defer cancel()
		binDir = filepath.Join(dir, "bin")
		defer func() { err = errors.Join(err, takeDown(ctx)) }()
		if err := start(ctx, dir, logDir); err != nil {
			return 1, err
		}
		code = m.Run()
		return code, errors.Join(atoll.Verify(ctx), atoll.Close(), checkRights())
	}, refused)
}

// start starts everything and connects to it.
func start(ctx context.Context, dir, logDir string) (err error) {
	if atoll, err = bringUp(ctx, dir, stack.Options{BinDir: binDir, LogDir: logDir}); err != nil {
		return err
	}
	if rest, err = atoll.HubEndpoint().HTTPClient(); err != nil {
		return err
	}
	if hub, err = atoll.HubClient(); err != nil {
		return err
	}
	for _, id := range clusters {
		if local[id], err = atoll.WorkerClient(id); err != nil {
			return err
		}
	}
	if kube, err = atoll.Kubes(); err != nil {
		return err
	}
	// A ready worker need not have connected yet.
	for _, cluster := range clusters {
		if err := waitState(ctx, cluster, sandboxv1.ClusterState_FRESH); err != nil {
			return err
		}
	}
	return nil
}
