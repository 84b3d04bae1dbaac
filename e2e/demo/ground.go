// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"navix.sh/atoll/e2e/kind"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

// ground is the clusters' platform. The steps depend on nothing else of it.
type ground interface {
	// up starts the clusters and describes them.
	up(ctx context.Context, w *world) (string, error)
	// start runs hub and workers in them.
	start(ctx context.Context, w *world) (*stack.Stack, error)
	// down removes what up started, if anything.
	down() error
	// kubectl is the command for the clusters.
	kubectl() string
	// forE2B reports whether the hub serves E2B clients.
	forE2B() bool
	// exits returns a command for a sandbox that ends with an exit code.
	exits(code int) []string
}

var grounds = map[string]func() ground{
	"planes": func() ground { return &onPlanes{} },
	"kind":   func() ground { return &onKind{} },
}

// options are those of hub and workers on any ground.
func (w *world) options() stack.Options {
	return stack.Options{BinDir: w.binDir, LogDir: w.logDir, Log: w.progress, Hubs: w.hubs, WorkerArgs: []string{"--team-quotas"}}
}

type onPlanes struct{ set *plane.Set }

func (g *onPlanes) up(ctx context.Context, w *world) (detail string, err error) {
	g.set, err = plane.Up(ctx, plane.Options{
		Log: w.progress, LogDir: filepath.Join(w.logDir, "planes"), Sandboxd: filepath.Join(w.binDir, "atoll-sandboxd"),
	}, clusters...)
	if err != nil {
		return "", fmt.Errorf("bringing up planes: %w", err)
	}
	return fmt.Sprintf("%d control planes", len(g.set.Planes())), nil
}

func (g *onPlanes) start(ctx context.Context, w *world) (*stack.Stack, error) {
	opts := w.options()
	opts.E2B = true
	opts.WorkerArgs = append(opts.WorkerArgs, "--sandboxd-image=registry.example/atoll-sandboxd:v1")
	return stack.Start(ctx, g.set, opts)
}

func (g *onPlanes) down() error { return g.set.Down(context.Background()) }

func (g *onPlanes) kubectl() string { return g.set.KubectlPath() }

func (g *onPlanes) forE2B() bool { return true }

func (g *onPlanes) exits(code int) []string {
	return []string{"sh", "-c", "exit " + strconv.Itoa(code)}
}

// kindClusters are the kind clusters, in the order of the demo's; the hub is in the first.
var kindClusters = []string{"hub", "worker-a", "worker-b"}

type onKind struct{ set *kind.Set }

func (g *onKind) up(ctx context.Context, w *world) (detail string, err error) {
	images := func(ctx context.Context) ([]string, error) {
		return stack.BuildImages(ctx, filepath.Join(w.binDir, "demo", "images"), false,
			stack.TestImage{Name: idleImage, Args: []string{"-tag=" + idleImage}},
			stack.TestImage{Name: swapImage, Args: []string{"-tag=" + swapImage}})
	}
	// KEEP=1 means until Ctrl-C, as on planes; because kept clusters are useless without this process's certificates and keys.
	g.set, err = stack.PrepareKind(ctx, images, kind.Options{Log: w.progress, Remove: true}, kindClusters...)
	if err != nil {
		return "", fmt.Errorf("bringing up kind clusters: %w", err)
	}
	return fmt.Sprintf("%d kind clusters, images loaded", len(g.set.Clusters())), nil
}

func (g *onKind) start(ctx context.Context, w *world) (*stack.Stack, error) {
	return stack.Install(ctx, g.set, clusters, w.options())
}

func (g *onKind) down() error { return g.set.Down(context.Background()) }

func (g *onKind) kubectl() string { return "kubectl" }

// The images of kind clusters have no shell, which the commands of E2B clients need.
func (g *onKind) forE2B() bool { return false }

func (g *onKind) exits(code int) []string { return []string{"/tenant", "exit", strconv.Itoa(code)} }

// bringUp starts the clusters.
func (w *world) bringUp(ctx context.Context) (string, error) { return w.ground.up(ctx, w) }

// startAtoll runs hub and workers and connects to them.
func (w *world) startAtoll(ctx context.Context) (string, error) {
	s, err := w.ground.start(ctx, w)
	if err != nil {
		return "", fmt.Errorf("starting hub and workers: %w", err)
	}
	w.stack = s
	if w.hub, err = s.HubClient(); err != nil {
		return "", err
	}
	for _, cluster := range clusters {
		if w.local[cluster], err = s.WorkerClient(cluster); err != nil {
			return "", err
		}
	}
	what := "hub"
	if w.hubs > 1 {
		what = fmt.Sprintf("%d replicas of the hub on an etcd, one address", w.hubs)
	}
	return fmt.Sprintf("%s at %s, one worker a cluster, joined by mutual TLS", what, s.HubEndpoint().Address), nil
}

// close ends programs and clusters.
func (w *world) close() error {
	var errs []error
	if w.stack != nil {
		errs = append(errs, w.stack.Close())
	}
	return errors.Join(append(errs, w.ground.down())...)
}
