// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

// patience bounds the whole demo, beside building the binaries of Kubernetes for the first time.
const patience = 10 * time.Minute

func main() {
	keep := flag.Bool("keep", false, "leave everything running until Ctrl-C, and print how to use it")
	binDir := flag.String("bin-dir", "bin", "folder with atoll-hub and atoll-worker")
	outDir := flag.String("out", filepath.Join("bin", "demo"), "folder for summary.json and the logs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *binDir, *outDir, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// clusters of the demo; the manifests name them.
var clusters = []string{"east", "north", "west"}

func run(ctx context.Context, binDir, outDir string, keep bool) (err error) {
	binDir, err = filepath.Abs(binDir)
	if err != nil {
		return fmt.Errorf("resolving --bin-dir: %w", err)
	}
	logDir := filepath.Join(outDir, "logs")
	if err := os.RemoveAll(logDir); err != nil {
		return fmt.Errorf("removing the last run's logs: %w", err)
	}
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return fmt.Errorf("creating --out: %w", err)
	}
	w := newWorld(os.Stdout, binDir, logDir)
	defer func() { err = errors.Join(err, w.close()) }()

	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	runErr := w.steps(bounded)
	summary := w.summary()
	summary.print(os.Stdout)
	if err := summary.write(filepath.Join(outDir, "summary.json")); err != nil {
		return errors.Join(runErr, err)
	}
	if runErr != nil {
		return fmt.Errorf("%w; logs are in %s", runErr, logDir)
	}
	if keep {
		w.printUsage()
		<-ctx.Done()
	}
	return nil
}

// bringUp starts planes, hub and workers.
func (w *world) bringUp(ctx context.Context) (string, error) {
	set, err := plane.Up(ctx, plane.Options{Log: w.progress, LogDir: filepath.Join(w.logDir, "planes")}, clusters...)
	if err != nil {
		return "", fmt.Errorf("bringing up planes: %w", err)
	}
	w.set = set
	return fmt.Sprintf("%d control planes", len(set.Planes())), nil
}

func (w *world) startAtoll(ctx context.Context) (string, error) {
	s, err := stack.Start(ctx, w.set, stack.Options{BinDir: w.binDir, LogDir: w.logDir, Log: w.progress})
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
	return fmt.Sprintf("hub at %s, one worker a cluster, joined by mutual TLS", s.HubAddress()), nil
}
