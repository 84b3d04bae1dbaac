// SPDX-License-Identifier: Apache-2.0

//go:build kind

package walk_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/kind"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	poolImage = "registry.example/python:3.13"
	// address is where this machine reaches the hub's API, as clusters/walk-hub.yaml maps it, and linkAddress where workers do.
	address, linkAddress = "127.0.0.1:30280", "walk-hub-control-plane:30443"
	// patience bounds every wait for convergence.
	patience = 3 * time.Minute
)

// clusters are the federation's, by id, and their kind clusters. The worker of north is hosted from east.
var clusters = map[string]string{"east": "walk-hub", "west": "walk-a", "north": "walk-b", "south": "walk-c"}

// What all steps share.
var (
	root, dir string
	set       *kind.Set
	nodes     = map[string]*kind.Cluster{}
	helm      *harness.Helm
	endpoint  stack.Endpoint
	hub       *stack.Client
)

func TestMain(m *testing.M) {
	flag.Parse()
	stack.RunSuite("walk", func(ctx context.Context, tmp, logDir string) (code int, err error) {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Minute)
		defer cancel()
		dir = tmp
		defer func() { err = errors.Join(err, set.Down(ctx)) }()
		if err := bringUp(ctx); err != nil {
			return 1, err
		}
		code = m.Run()
		return code, collectLogs(ctx, logDir)
	})
}

// bringUp creates the clusters and loads the images that the charts name.
func bringUp(ctx context.Context) (err error) {
	if root, err = filepath.Abs("../.."); err != nil {
		return err
	}
	images := filepath.Join(dir, "images")
	var tenants string
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if err := stack.Build(groupCtx, filepath.Join(dir, "bin"), false); err != nil {
			return err
		}
		if _, err := command(groupCtx, "make", "-C", root, "images", "IMAGES="+images); err != nil {
			return err
		}
		tenants, err = stack.BuildSandboxes(groupCtx, images, stack.TestImage{Name: poolImage, Args: []string{"-tag=" + poolImage}})
		return err
	})
	group.Go(func() (err error) {
		set, err = kind.Up(groupCtx, kind.Options{ConfigDir: "clusters"}, "walk-hub", "walk-a", "walk-b", "walk-c")
		return err
	})
	group.Go(func() (err error) {
		helm, err = harness.New(groupCtx, filepath.Join(dir, "helm"))
		return err
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	path := strings.Join([]string{filepath.Join(dir, "bin"), filepath.Dir(helm.Path()), os.Getenv("PATH")}, string(os.PathListSeparator))
	if err := os.Setenv("PATH", path); err != nil {
		return err
	}
	for _, c := range set.Clusters() {
		for id, name := range clusters {
			if name == c.Name {
				nodes[id] = c
			}
		}
	}
	if err := nodes["east"].Load(ctx, filepath.Join(images, "atoll-hub.tar")); err != nil {
		return err
	}
	archives := append(listOf(*agentArchives), filepath.Join(images, "atoll-worker.tar"), filepath.Join(images, "atoll-sandboxd.tar"), tenants)
	return set.Load(ctx, archives...)
}

// command runs a program and returns its standard output. The error has all of its output.
func command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	if endpoint.Address != "" {
		cmd.Env = append(os.Environ(), "ATOLL_SERVER="+endpoint.Address, "ATOLL_CA_FILE="+endpoint.CAFile, "ATOLL_TOKEN_FILE="+endpoint.TokenFile)
	}
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

// trust stores the CA that the hub shows on this machine's loopback.
func trust(ctx context.Context) (file string, err error) {
	file = filepath.Join(dir, "ca.crt")
	return file, wait.Until(ctx, patience, "the hub to show its CA", func(ctx context.Context) error {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the first use, on loopback
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		chain := conn.(*tls.Conn).ConnectionState().PeerCertificates
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: chain[len(chain)-1].Raw})
		return errors.Join(conn.Close(), os.WriteFile(file, text, 0o600))
	})
}

// collectLogs writes the logs of hub and workers, in which the suite looks for crashes.
func collectLogs(ctx context.Context, logDir string) error {
	if err := os.MkdirAll(logDir, 0o700); err != nil {
		return err
	}
	var errs []error
	for id, c := range nodes {
		for _, app := range []string{"atoll-hub", "atoll-worker"} {
			out, err := c.Kubectl(ctx, "-n", stack.Namespace, "logs", "-l", "app.kubernetes.io/name="+app, "--tail=-1", "--prefix",
				"--ignore-errors")
			errs = append(errs, err, os.WriteFile(filepath.Join(logDir, app+"-"+id+".log"), []byte(out), 0o600))
		}
	}
	return errors.Join(errs...)
}
