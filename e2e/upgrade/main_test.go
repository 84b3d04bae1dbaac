// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/stack"
)

// fromEnv names the revision to upgrade from.
const fromEnv = "ATOLL_UPGRADE_FROM"

// clusters are the ids of the clusters. The hub is in the first, where it runs in one at all.
var clusters = []string{"east", "west"}

var (
	atoll    *stack.Stack
	hub      *stack.Client
	kube     = map[string]client.Client{} // live, no cache
	old, new stack.Version
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
	ctx, cancel := context.WithTimeout(ctx, 40*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "atoll-upgrade-")
	if err != nil {
		return 1, fmt.Errorf("making a folder: %w", err)
	}
	logDir := filepath.Join(dir, "logs")
	defer func() {
		if code != 0 || err != nil {
			fmt.Fprintln(os.Stderr, "the programs' logs are kept in", logDir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	if err := chooseVersions(ctx, dir); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, takeDown(ctx)) }()
	if atoll, err = bringUp(ctx, dir, logDir); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, atoll.Close()) }()
	if err := connect(); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, atoll.Verify(ctx)
}

// chooseVersions finds the sources of both versions.
func chooseVersions(ctx context.Context, dir string) (err error) {
	if new, err = stack.Checkout(ctx, "new"); err != nil {
		return err
	}
	revision := os.Getenv(fromEnv)
	if revision == "" {
		revision, err = stack.Previous(ctx)
	}
	if errors.Is(err, stack.ErrNoHistory) {
		fmt.Fprintf(os.Stderr, "upgrade: both versions have the same sources (name another revision with %s): %v\n", fromEnv, err)
		old, err = stack.Checkout(ctx, "old")
		return err
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "upgrade: from revision", revision)
	old, err = stack.Revision(ctx, "old", revision, filepath.Join(dir, "old"))
	return err
}

func connect() (err error) {
	if hub, err = atoll.HubClient(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("building the scheme: %w", err)
	}
	for _, id := range clusters {
		if kube[id], err = client.New(atoll.Cluster(id).Config(), client.Options{Scheme: scheme}); err != nil {
			return fmt.Errorf("building a client of %s: %w", id, err)
		}
	}
	return nil
}
