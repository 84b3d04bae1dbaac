// SPDX-License-Identifier: Apache-2.0

// Package federation_test runs Atoll as its users do, a hub and three workers as processes against three real control
// planes, breaks it, and holds it to its invariants, each test to the one that its name says.
//
// Everything is brought up once. A test has an Env of its own, heals what it broke, and leaves no Pod behind. All programs
// are built with the race detector; what they logged is looked through at the end.
package federation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/pkg/verify"
)

// clusters are the planes, and the ClusterIDs of the workers in them.
var clusters = []string{"east", "north", "west"}

// What all tests share.
var (
	set     *plane.Set
	atoll   *stack.Stack
	hub     *stack.Client
	local   = map[string]*stack.Client{}
	kube    = map[string]client.Client{} // live, no cache
	readers []verify.Reader
	binDir  string
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	// The first run on a machine builds Kubernetes.
	ctx, cancel := context.WithTimeout(ctx, 25*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "atoll-federation-")
	if err != nil {
		return 1, fmt.Errorf("making a folder: %w", err)
	}
	binDir = filepath.Join(dir, "bin")
	logDir := filepath.Join(dir, "logs")
	defer func() {
		if code != 0 || err != nil {
			fmt.Fprintln(os.Stderr, "the programs' logs are kept in", logDir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	defer func() {
		if set != nil {
			err = errors.Join(err, set.Down(ctx))
		}
	}()
	if err := start(ctx, logDir); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, errors.Join(atoll.Close(), checkLogs(logDir))
}

// start brings up planes and programs, and connects to them.
func start(ctx context.Context, logDir string) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return stack.Build(groupCtx, binDir, true) })
	group.Go(func() (err error) {
		set, err = plane.Up(groupCtx, plane.Options{}, clusters...)
		return err
	})
	err := group.Wait()
	if err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	if atoll, err = stack.Start(ctx, set, stack.Options{BinDir: binDir, LogDir: logDir}); err != nil {
		return fmt.Errorf("starting hub and workers: %w", err)
	}
	if hub, err = atoll.HubClient(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("building the scheme: %w", err)
	}
	for _, p := range set.Planes() {
		if local[p.Name], err = atoll.WorkerClient(p.Name); err != nil {
			return err
		}
		if kube[p.Name], err = client.New(p.Config(), client.Options{Scheme: scheme}); err != nil {
			return fmt.Errorf("building a client of %s: %w", p.Name, err)
		}
		readers = append(readers, verify.Reader{ID: p.Name, Client: kube[p.Name]})
	}
	return nil
}
