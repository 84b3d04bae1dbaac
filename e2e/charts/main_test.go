// SPDX-License-Identifier: Apache-2.0

// Package charts_test installs, upgrades, rolls back and removes the charts with helm on a real API server, looks at what
// they render to for the values that matter, and at what their schemas refuse.
package charts_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/plane"
)

// The plane is shared by all tests. It has no CRDs of Atoll: they are the worker chart's to install.
var (
	east *plane.Plane
	core kubernetes.Interface
	helm *harness.Helm
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
	// The first run on a machine builds Kubernetes and helm.
	ctx, cancel := context.WithTimeout(ctx, 25*time.Minute)
	defer cancel()
	home, err := os.MkdirTemp("", "atoll-helm-")
	if err != nil {
		return 1, fmt.Errorf("creating a home for helm: %w", err)
	}
	defer os.RemoveAll(home)
	if helm, err = harness.New(ctx, home); err != nil {
		return 1, err
	}
	noCRDs, err := os.MkdirTemp(home, "crds-")
	if err != nil {
		return 1, fmt.Errorf("creating an empty folder: %w", err)
	}
	set, err := plane.Up(ctx, plane.Options{CRDDir: noCRDs}, "east")
	if err != nil {
		return 1, err
	}
	defer func() {
		if downErr := set.Down(ctx); err == nil {
			err = downErr
		}
	}()
	east = set.Plane("east")
	if core, err = kubernetes.NewForConfig(east.Config()); err != nil {
		return 1, fmt.Errorf("building a client: %w", err)
	}
	return m.Run(), nil
}
