// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

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

	"navix.sh/atoll/e2e/kind"
	"navix.sh/atoll/e2e/stack"
)

// The clusters, by their ids in the federation.
const (
	resets   = "resets" // the hub is in it
	defaults = "defaults"
)

// The images of sandboxes.
const (
	idleImage    = "registry.example/python:3.13"
	tenantImage  = "registry.example/python:3.14"
	exit0Image   = "registry.example/exit0:1"
	exit1Image   = "registry.example/exit1:1"
	missingImage = "registry.example/missing:1" // of which there is none
)

// What all tests share.
var (
	set   *kind.Set
	nodes map[string]*kind.Cluster
	atoll *stack.Stack
	hub   *stack.Client
	kube  map[string]client.WithWatch
)

func TestMain(m *testing.M) {
	flag.Parse()
	stack.RunSuite("kubelet", func(ctx context.Context, dir, logDir string) (code int, err error) {
		ctx, cancel := context.WithTimeout(ctx, 40*time.Minute)
		defer cancel()
		defer func() { err = errors.Join(err, set.Down(ctx)) }()
		if err := bringUp(ctx, dir, logDir); err != nil {
			return 1, err
		}
		code = m.Run()
		figures.print(os.Stdout)
		return code, errors.Join(atoll.Verify(ctx), atoll.Close())
	})
}

func bringUp(ctx context.Context, dir, logDir string) error {
	bin, images := filepath.Join(dir, "bin"), filepath.Join(dir, "images")
	build := func(ctx context.Context) ([]string, error) {
		if err := stack.Build(ctx, bin, false); err != nil {
			return nil, err
		}
		archives, err := stack.BuildImages(ctx, images, true,
			stack.TestImage{Name: idleImage, Args: []string{"-tag=" + idleImage}},
			stack.TestImage{Name: tenantImage, Args: []string{"-tag=" + tenantImage}},
			stack.TestImage{Name: exit0Image, Args: []string{"exit", "0"}},
			stack.TestImage{Name: exit1Image, Args: []string{"exit", "1"}})
		return append(archives, listOf(*daemonArchives)...), err
	}
	var err error
	if set, err = stack.PrepareKind(ctx, build, kind.Options{ConfigDir: "clusters"}, "kubelet-"+resets, "kubelet-"+defaults); err != nil {
		return err
	}
	options := stack.Options{BinDir: bin, LogDir: logDir, HubAddress: "127.0.0.1:30081"}
	if atoll, err = stack.Install(ctx, set, []string{resets, defaults}, options); err != nil {
		return fmt.Errorf("installing hub and workers: %w", err)
	}
	return connect()
}

func connect() (err error) {
	if hub, err = atoll.HubClient(); err != nil {
		return err
	}
	nodes = map[string]*kind.Cluster{resets: set.Clusters()[0], defaults: set.Clusters()[1]}
	kube, err = atoll.Kubes()
	return err
}
