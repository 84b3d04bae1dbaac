// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/history"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// env is the Env of the manifests.
const envNamespace, envName = "default", "python"

// world is the state that the steps share.
type world struct {
	out      io.Writer
	progress io.Writer
	binDir   string
	logDir   string
	hubs     int

	ground ground
	stack  *stack.Stack
	hub    *stack.Client
	local  map[string]*stack.Client
	caller stack.EnvCaller
	done   []stepResult

	mu        sync.Mutex
	latencies []time.Duration
	byCluster map[string]int
	ok, bad   int

	foreignOK    bool
	hubDownOK    int
	hubRecovered bool
	keyed        *sandboxv1.Sandbox
}

func newWorld(out io.Writer, on ground, binDir, logDir string) *world {
	return &world{
		ground: on, out: out, progress: indent{out}, binDir: binDir, logDir: logDir, local: map[string]*stack.Client{},
		byCluster: map[string]int{}, caller: stack.EnvCaller{Namespace: envNamespace, Env: envName, Holdings: history.NewHoldings()},
	}
}

// indent indents progress below the steps' own lines.
type indent struct{ w io.Writer }

func (i indent) Write(p []byte) (int, error) {
	if _, err := fmt.Fprintf(i.w, "      %s", p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// claim makes one claim and records it.
func (w *world) claim(ctx context.Context, c *stack.Client, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	begin := time.Now()
	sandbox, err := w.caller.Claim(ctx, c, r)
	took := time.Since(begin)
	w.mu.Lock()
	defer w.mu.Unlock()
	if sandbox == nil {
		w.bad++
		return nil, err
	}
	w.ok++
	w.latencies = append(w.latencies, took)
	w.byCluster[sandbox.GetClusterId()]++
	return sandbox, err
}

// claimMany makes n concurrent claims through the hub and counts them by cluster.
func (w *world) claimMany(ctx context.Context, n int) (map[string]int, error) {
	var mu sync.Mutex
	got := map[string]int{}
	var group errgroup.Group
	for range n {
		group.Go(func() error {
			sandbox, err := w.claim(ctx, w.hub, &sandboxv1.CreateSandboxRequest{})
			if err != nil {
				return err
			}
			mu.Lock()
			got[sandbox.GetClusterId()]++
			mu.Unlock()
			return nil
		})
	}
	return got, group.Wait()
}

// waitFor waits, and prints once a second what is missing.
func (w *world) waitFor(ctx context.Context, what string, limit time.Duration, check func(context.Context) error) error {
	said := time.Now()
	return wait.Until(ctx, limit, what, func(ctx context.Context) error {
		err := check(ctx)
		if err != nil && time.Since(said) > time.Second {
			said = time.Now()
			fmt.Fprintf(w.progress, "waiting for %s: %v\n", what, err)
		}
		return err
	})
}

// waitWarm waits until every cluster has its desired Pods ready, in the hub's view.
func (w *world) waitWarm(ctx context.Context) error {
	return w.waitReady(ctx, "warm Pods", 2*time.Minute, map[string]int{"east": 6, "north": 4, "west": 8})
}

// waitReady waits until the hub sees that many claimable Pods in each cluster.
func (w *world) waitReady(ctx context.Context, what string, limit time.Duration, want map[string]int) error {
	return w.waitFor(ctx, fmt.Sprintf("%s, %v", what, want), limit, func(ctx context.Context) error {
		ready, err := w.hub.ReadyIdle(ctx, envNamespace, envName)
		if err != nil {
			return err
		}
		return wait.If(maps.Equal(ready, want), ready)
	})
}

func (w *world) printUsage(on string) {
	hub := w.stack.HubEndpoint()
	atollctl := filepath.Join(w.binDir, "atollctl")
	curl := "curl -s"
	fmt.Fprintf(w.out, "\nStill running, until Ctrl-C. In another terminal:\n\n")
	fmt.Fprintf(w.out, "  export ATOLL_SERVER=%s\n", hub.Address)
	if hub.CAFile != "" {
		fmt.Fprintf(w.out, "  export ATOLL_CA_FILE=%s ATOLL_TOKEN_FILE=%s\n", hub.CAFile, hub.TokenFile)
		curl += " --cacert $ATOLL_CA_FILE --header \"Authorization: Bearer $(cat $ATOLL_TOKEN_FILE)\""
	}
	fmt.Fprintf(w.out, "  %s top\n", atollctl)
	fmt.Fprintf(w.out, "  %s create --env python --claim-key mine\n", atollctl)
	note := ""
	if on == "planes" {
		note = "   # no container: it runs on this machine, as you"
	}
	fmt.Fprintf(w.out, "  %s exec -it SANDBOX -- sh%s\n", atollctl, note)
	fmt.Fprintf(w.out, "  %s explain python\n", atollctl)
	fmt.Fprintf(w.out, "  %s %s/v1/clusters\n", curl, hub.URL())
	if w.ground.forE2B() {
		fmt.Fprint(w.out, e2bUsage(w.stack.E2BURL("")))
	}
	var kubeconfigs string
	local := map[string]string{}
	for _, id := range w.stack.Clusters() {
		local[id] = w.stack.WorkerEndpoint(id).URL()
		kubeconfigs += fmt.Sprintf(" --kubeconfig %s=%s", id, w.stack.Cluster(id).Kubeconfig())
	}
	fmt.Fprintf(w.out, "  %s verify%s\n", atollctl, kubeconfigs)
	fmt.Fprintf(w.out, "  %s doctor%s\n", atollctl, kubeconfigs)
	for _, id := range w.stack.Clusters() {
		fmt.Fprintf(w.out, "  %s --kubeconfig %s get sbe,sbp,pods   # %s on %s\n", w.ground.kubectl(), w.stack.Cluster(id).Kubeconfig(), id, on)
	}
	fmt.Fprintf(w.out, "\n%s", whereToLook(w.logDir, local, w.stack.MetricsURLs()))
}

// whereToLook names the places of logs, local APIs and metrics.
func whereToLook(logDir string, local, metrics map[string]string) string {
	out := fmt.Sprintf("Logs: %s\n", logDir)
	for _, cluster := range slices.Sorted(maps.Keys(local)) {
		out += fmt.Sprintf("Local API of %s: %s\n", cluster, local[cluster])
	}
	for _, program := range slices.Sorted(maps.Keys(metrics)) {
		out += fmt.Sprintf("Metrics of %s: %s\n", program, metrics[program])
	}
	return out
}
