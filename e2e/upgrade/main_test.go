// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/e2e/stack"
)

var fromFlag = flag.String("from", "", "revision to upgrade from; by default the newest earlier tag, or without tags the commit before")

// clusters are the ids of the clusters. The hub is in the first, where it runs in one at all.
var clusters = []string{"east", "west"}

var (
	atoll    *stack.Stack
	hub      *stack.Client
	kube     map[string]client.WithWatch // live, no cache
	old, new stack.Version
)

func TestMain(m *testing.M) {
	flag.Parse()
	stack.RunSuite("upgrade", func(ctx context.Context, dir, logDir string) (code int, err error) {
		ctx, cancel := context.WithTimeout(ctx, 40*time.Minute)
		defer cancel()
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
	})
}

// chooseVersions finds the sources of both versions.
func chooseVersions(ctx context.Context, dir string) (err error) {
	if new, err = stack.Checkout(ctx, "new"); err != nil {
		return err
	}
	revision := *fromFlag
	if revision == "" {
		revision, err = stack.Previous(ctx)
	}
	if errors.Is(err, stack.ErrNoHistory) {
		fmt.Fprintf(os.Stderr, "upgrade: both versions have the same sources (name another revision with -from): %v\n", err)
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
	kube, err = atoll.Kubes()
	return err
}
