// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/pkg/heap"
	"navix.sh/atoll/pkg/link"
)

// busy is the load above which a machine is too busy to gate on.
const busy = 1.0

func main() {
	binDir := flag.String("bin-dir", "bin", "folder with atoll-hub and atoll-worker")
	outDir := flag.String("out", filepath.Join("bin", "bench"), "folder for latest.json and the logs")
	only := flag.String("only", "", "routing, queue, autoscaling, link, one of its figures, reach, claims, or of those the ceiling or the swap alone, big; default: all")
	var s size
	flag.IntVar(&s.envs, "envs", 1000, "Envs of the part big")
	flag.IntVar(&s.pods, "pods", 10, "Pods of each of them")
	flag.DurationVar(&s.idle, "idle", time.Minute, "how long they are left alone; ten minutes is what is promised for")
	flag.Parse()
	if args := flag.Args(); len(args) == 5 && args[0] == bareCommand {
		fmt.Fprintln(os.Stderr, "bench:", decodeOnly(args[1], link.Files{Cert: args[2], Key: args[3], CA: args[4]}))
		os.Exit(1)
	}
	// Workers in this process collect garbage at the expense of its callers, as those on machines of their own do not.
	heap.Relax()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if args := flag.Args(); len(args) == 2 && args[0] == awayCommand {
		var a away
		err := json.Unmarshal([]byte(args[1]), &a)
		if err == nil {
			err = a.play(ctx, os.Stdin, os.Stdout)
		}
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench: playing workers:", err)
			os.Exit(1)
		}
		return
	}
	err := run(ctx, *binDir, *outDir, *only, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binDir, outDir, only string, s size) error {
	doc := document{Schema: 1, Commit: commit(ctx), Load: loadAverage()}
	fmt.Printf("commit %s, load %.2f, etcd with fsync\n", doc.Commit, doc.Load)
	for _, part := range []struct {
		name    string
		wanted  bool
		measure func() ([]result, error)
	}{
		{"routing", only == "routing", func() ([]result, error) { return routing(ctx) }},
		{"queue", only == "queue", func() ([]result, error) { return queueing(ctx) }},
		{"autoscaling", only == "autoscaling", func() ([]result, error) { return autoscaling(ctx) }},
		{"link", linkWanted(only), func() ([]result, error) {
			return linkResults(ctx, binDir, filepath.Join(outDir, "logs-link"), only)
		}},
		{"reach", only == "reach", func() ([]result, error) { return reaching(ctx, binDir, outDir) }},
		{"claims", only == "claims" || only == "ceiling" || only == "swap", func() ([]result, error) {
			return claims(ctx, binDir, outDir, only)
		}},
		{"big", only == "big", func() ([]result, error) { return big(ctx, binDir, outDir, s) }},
	} {
		if only != "" && !part.wanted {
			continue
		}
		fmt.Println(part.name + ":")
		results, err := part.measure()
		if err != nil {
			return err
		}
		doc.add(results)
	}
	doc.print(os.Stdout)
	if err := doc.write(filepath.Join(outDir, "latest.json")); err != nil {
		return err
	}
	missed := doc.missed()
	switch {
	case len(missed) == 0:
		return nil
	case doc.Load > busy:
		fmt.Printf("\nnot gated, the machine was busy (load %.2f); missed: %s\n", doc.Load, strings.Join(missed, "; "))
		return nil
	default:
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
}

// claims measures against one plane, a hub and a worker.
func claims(ctx context.Context, binDir, outDir, only string) ([]result, error) {
	return onOnePlane(ctx, binDir, filepath.Join(outDir, "logs"), plane.Options{}, func(p *plane.Plane, atoll *stack.Stack) ([]result, error) {
		hub, err := atoll.HubClient()
		if err != nil {
			return nil, err
		}
		fmt.Printf("  stocking %d Pods for each arm\n", stockSize)
		s, err := newStock(ctx, p, hub)
		if err != nil {
			return nil, err
		}
		return s.measure(ctx, only)
	})
}

// onOnePlane measures against one plane, a hub and a worker.
func onOnePlane(
	ctx context.Context, binDir, logDir string, opts plane.Options, measure func(*plane.Plane, *stack.Stack) ([]result, error),
) (results []result, err error) {
	if binDir, err = filepath.Abs(binDir); err != nil {
		return nil, fmt.Errorf("resolving --bin-dir: %w", err)
	}
	if err := errors.Join(os.RemoveAll(logDir), os.MkdirAll(logDir, 0o755)); err != nil {
		return nil, fmt.Errorf("preparing the logs' folder: %w", err)
	}
	opts.LogDir = filepath.Join(logDir, "planes")
	set, err := plane.Up(ctx, opts, "bench")
	if err != nil {
		return nil, fmt.Errorf("bringing up a plane: %w", err)
	}
	defer func() { err = errors.Join(err, set.Down(ctx)) }()
	atoll, err := stack.Start(ctx, set, stack.Options{BinDir: binDir, LogDir: logDir})
	if err != nil {
		return nil, fmt.Errorf("starting hub and worker: %w", err)
	}
	defer func() { err = errors.Join(err, atoll.Close()) }()
	return measure(set.Plane("bench"), atoll)
}

func (s *stock) measure(ctx context.Context, only string) ([]result, error) {
	b := &holdings{holder: map[string]string{}, refused: map[string]int{}}
	if only == "swap" {
		return s.swapped(ctx, b)
	}
	c := comparison{raw: s.rawArm(false), hub: s.hubArm(b, false), log: os.Stdout}
	ceiling, results, err := c.ceilings(ctx, 0.8)
	if err != nil || only == "ceiling" {
		return results, err
	}
	for _, share := range shares {
		more, err := c.latency(ctx, share, ceiling, 1.5, 2)
		if err != nil {
			return nil, err
		}
		results = append(results, more...)
	}
	more, err := c.burst(ctx)
	if err != nil {
		return nil, err
	}
	results = append(results, more...)
	keyed := comparison{raw: c.raw, hub: s.hubArm(b, true), log: os.Stdout}
	if more, err = keyed.latency(ctx, keyedShare, ceiling, 0, 0); err != nil {
		return nil, err
	}
	results = append(results, more...)
	if more, err = s.countWrites(ctx, c.hub); err != nil {
		return nil, err
	}
	results = append(results, more...)
	// Last, because it changes the raw Pods for good.
	untracked := comparison{raw: s.rawArm(true), hub: c.hub, log: os.Stdout}
	if _, more, err = untracked.ceilings(ctx, 0); err != nil {
		return nil, err
	}
	results = append(results, more...)
	// After it the pool's Pods are others than were stocked.
	if more, err = s.swapped(ctx, b); err != nil {
		return nil, err
	}
	results = append(results, more...)
	if len(b.refused) > 0 {
		fmt.Printf("  claims that failed, by reason: %v\n", b.refused)
	}
	return append(results, result{Name: "Pods answered twice", Value: float64(b.doubled), Unit: "Pods"}.exactly(0)), nil
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
