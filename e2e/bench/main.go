// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"navix.sh/atoll/pkg/heap"
)

// size is the amount of measurements.
type size struct {
	quick bool
	// pairs of legs of a comparison, and the number of runs of a Go benchmark.
	pairs int
	// benchTime is the testing package's benchtime.
	benchTime string
	// stock is the number of Pods of each arm of the claims. A leg claims all of them.
	stock int
	// failovers is how often a replica of the hub is killed, and moves how often one that a third of so many clusters is attached to.
	failovers, moves, moving int
	// burst is the number of Pods of each arm in three clusters, all claimed at once.
	burst int
	// swaps of a leg, and connections that a leg opens.
	swaps, opens int
	// world is the number of clusters of a restarted hub, each with 1000 Envs.
	world int
	// reporters are the clusters that report while claims go to others.
	reporters int
	// saturations of a cluster while claims come.
	saturations int
	// fill is the number of Pods of the pool whose filling is timed.
	fill int
	// envs, and pods of each, are the size of the cluster of rest and busy.
	envs, pods int
	idle, busy time.Duration
	// step is how long each rate of sustained is tried, sustain how long the highest one is kept up.
	step, sustain time.Duration
}

var (
	fullSize = size{
		pairs: 10, failovers: 10, moves: 3, moving: 1000, benchTime: "1s", stock: 200, burst: 1000, swaps: 10, opens: 20, world: 100,
		reporters: 1000, saturations: 200, fill: 200,
		envs: 1000, pods: 10, idle: 10 * time.Minute, busy: time.Minute,
		step: time.Minute, sustain: 10 * time.Minute,
	}
	quickSize = size{
		quick: true, pairs: 2, failovers: 2, moves: 1, moving: 60, benchTime: "100ms", stock: 50, burst: 90, swaps: 4, opens: 5, world: 10,
		reporters: 100, saturations: 20,
		fill: 40, envs: 40, pods: 10, idle: 20 * time.Second, busy: 2 * time.Second,
		step: 5 * time.Second, sustain: 10 * time.Second,
	}
)

// peerPart is the part that compares with another project.
const peerPart = "peer"

// parts are the measurements. The parts of a group share their set-up.
var parts = []part{
	{"routing", "", 10 * time.Minute, (*bench).routing},
	{"queue", "", 10 * time.Minute, (*bench).queue},
	{"autoscaling", "", 10 * time.Minute, (*bench).autoscaling},
	{"ingest", "link", 10 * time.Minute, (*bench).ingest},
	{"keyed", "link", 10 * time.Minute, (*bench).keyed},
	{"saturation", "link", 10 * time.Minute, (*bench).saturation},
	{"fanout", "link", 10 * time.Minute, (*bench).fanOut},
	{"recovery", "link", 10 * time.Minute, (*bench).recovery},
	{"memory", "link", 10 * time.Minute, (*bench).memory},
	{"reporting", "link", 10 * time.Minute, (*bench).reporting},
	{"reach", "", 10 * time.Minute, (*bench).reach},
	{"agents", "", 15 * time.Minute, (*bench).agents},
	{"kubectl", "", 10 * time.Minute, (*bench).kubectl},
	{"ceiling", "claims", 10 * time.Minute, (*bench).ceiling},
	{"latency", "claims", 15 * time.Minute, (*bench).latency},
	{"cost", "claims", 10 * time.Minute, (*bench).cost},
	{"swap", "claims", 10 * time.Minute, (*bench).swap},
	{"burst", "", 20 * time.Minute, (*bench).bursts},
	{"sustained", "", 30 * time.Minute, (*bench).sustained},
	{peerPart, "", 30 * time.Minute, (*bench).peer},
	{"replicas", "", 15 * time.Minute, (*bench).replicas},
	{"throughput", "", 15 * time.Minute, (*bench).throughput},
	{"moved", "", 15 * time.Minute, (*bench).moved},
	{"fill", "big", 10 * time.Minute, (*bench).fill},
	{"rest", "big", 30 * time.Minute, (*bench).rest},
	{"busy", "big", 20 * time.Minute, (*bench).busy},
}

func main() { os.Exit(command()) }

// command returns the exit code.
func command() int {
	binDir := flag.String("bin-dir", "bin", "folder with atoll-hub and atoll-worker")
	outDir := flag.String("out", filepath.Join("bin", "bench"), "folder for latest.json and the logs")
	only := flag.String("only", "", "parts or groups of parts to measure, separated by commas: "+strings.Join(names(), ", ")+"; default: all")
	peerDir := flag.String("peer", "",
		"checkout of github.com/kubernetes-sigs/agent-sandbox, v0.5.0 or later, for part peer; without it the part is left out")
	quick := flag.Bool("quick", false, "measure less of everything: shows that it works, and judges nothing but counts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if flag.Arg(0) == scaleCommand {
		return measureScale(ctx, flag.Args()[1:])
	}
	if len(flag.Args()) > 0 {
		return exitCode(child(ctx, flag.Args()))
	}
	wanted, err := choose(*only, *peerDir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	}
	for _, dir := range []*string{binDir, outDir, peerDir} {
		if *dir == "" {
			continue
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return exitCode(err)
		}
	}
	// Workers in this process collect garbage at its callers' expense, unlike remote ones.
	heap.Relax()
	b := &bench{size: fullSize, binDir: *binDir, outDir: *outDir, peerDir: *peerDir, out: os.Stdout}
	if *quick {
		b.size = quickSize
	}
	b.doc = document{Schema: 1, Commit: commit(ctx), Load: loadAverage(), Quick: *quick}
	return exitCode(b.run(ctx, wanted))
}

func exitCode(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// names returns the names of all parts and groups.
func names() []string {
	var out []string
	for _, p := range parts {
		for _, name := range []string{p.group, p.name} {
			if name != "" && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// choose returns the parts of -only, or all. Part peer needs -peer.
func choose(only, peer string) ([]part, error) {
	if only == "" {
		return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.name == peerPart && peer == "" }), nil
	}
	asked := strings.Split(only, ",")
	for _, name := range asked {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("-only %s: there is no part or group %q; valid: %s", only, name, strings.Join(names(), ", "))
		}
	}
	if slices.Contains(asked, peerPart) && peer == "" {
		return nil, fmt.Errorf("-only %s: %s needs -peer, a checkout of github.com/kubernetes-sigs/agent-sandbox", only, peerPart)
	}
	var wanted []part
	for _, p := range parts {
		if slices.Contains(asked, p.name) || slices.Contains(asked, p.group) {
			wanted = append(wanted, p)
		}
	}
	return wanted, nil
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
