// SPDX-License-Identifier: Apache-2.0

// Package faults_test runs Atoll under every known fault while callers claim, and checks the responses that the callers got.
//
// Two clusters are planes. Hub and workers are processes under the RBAC of their charts, built with the race detector (but see
// -races) and with the tag atolltest, which lets the suite control their clocks and the frames of their links. A proxy is in
// every connection between worker and hub, worker and API server, caller and hub. A program that exits is restarted, as a
// kubelet would.
//
// A run is one fault under one seed. It begins with a healthy federation whose callers hold sandboxes. A load of claims with
// and without keys, retries, releases, cancels, re-applies and changes of scale runs throughout. The suite injects the fault,
// heals it, and measures how long it takes until every cluster serves claims with a key again. In the end the responses have an
// order that explains them (package history), every held sandbox runs where its response said, no other sandbox runs, and
// package verify finds nothing.
//
//	go test ./e2e/faults                                     a short run of a few faults
//	go test ./e2e/faults -timeout 3h -args -faults all -seeds 1,2,3
//	go test ./e2e/faults -timeout 3h -args -hubs 3 -faults all -seeds 1,2,3
//	go test ./e2e/faults -timeout 3h -run Claims -args -claims 100000 -crowd 48 -pods 60 -races=false -seeds 7
package faults_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"navix.sh/atoll/e2e/stack"
)

var (
	faultsFlag = flag.String("faults", "1,9,21",
		"numbers of the faults to run, with commas between them, or all; by default one at each kind of place")
	seedsFlag  = flag.String("seeds", "1", "seeds of the runs of each fault, with commas between them")
	writesFlag = flag.Int("writes", 60, "how often each of the two writers of fault 19 writes")
	killsFlag  = flag.Int("kills", 200, "how many times workers are killed in fault 23, all together")
	claimsFlag = flag.Int("claims", 100, "how many claims are made under random continuous faults")
	crowdFlag  = flag.Int("crowd", 8, "how many callers with a key, and as many without, make these")
	podsFlag   = flag.Int("pods", 10, "Pods of the Env in each cluster, when no fault changes its scale")
	hubsFlag   = flag.Int("hubs", 1, "replicas of the hub; several share an etcd, and have faults of their own, from 31")
	racesFlag  = flag.Bool("races", true, "build hub and workers with the race detector, which takes more than half of what they run on")
)

// clusters are the ids of the clusters.
var clusters = []string{"east", "west"}

// What all runs share.
var (
	fed    *world
	chosen []fault
	seeds  []uint64
)

func TestMain(m *testing.M) {
	flag.Parse()
	var faultsErr, seedsErr error
	chosen, faultsErr = choose(*faultsFlag, *hubsFlag)
	seeds, seedsErr = parseSeeds(*seedsFlag)
	if err := errors.Join(faultsErr, seedsErr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	stack.RunSuite("faults", func(ctx context.Context, dir, logDir string) (code int, err error) {
		// The first run on a machine builds Kubernetes.
		upCtx, cancel := context.WithTimeout(ctx, 40*time.Minute)
		defer cancel()
		fed = newWorld(dir, logDir)
		defer func() { err = errors.Join(err, fed.down(ctx)) }()
		if err := fed.up(upCtx); err != nil {
			return 1, err
		}
		code = m.Run()
		results.print(os.Stderr)
		return code, nil
	})
}
