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

	"navix.sh/atoll/e2e/stack"
)

// patience bounds the whole demo, except the first build of Kubernetes.
const patience = 10 * time.Minute

func main() {
	on := flag.String("on", "planes", "what to run on: planes, or kind")
	keep := flag.Bool("keep", false, "leave everything running until Ctrl-C, and print how to use it")
	binDir := flag.String("bin-dir", "bin", "folder with atoll-hub and atoll-worker")
	outDir := flag.String("out", filepath.Join("bin", "demo"), "folder for summary.json and the logs")
	hubs := flag.Int("hubs", 1, "replicas of the hub, on planes; several share an etcd")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *on, *hubs, *binDir, *outDir, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// clusters of the demo; the manifests name them.
var clusters = []string{"east", "north", "west"}

func run(ctx context.Context, on string, hubs int, binDir, outDir string, keep bool) (err error) {
	ground, known := grounds[on]
	if !known {
		return fmt.Errorf("--on %q is not valid, want planes or kind", on)
	}
	if hubs < 1 || hubs > 5 || hubs > 1 && on != "planes" {
		return fmt.Errorf("--hubs %d is not valid, want 1 to 5, and 1 on kind", hubs)
	}
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
	w := newWorld(os.Stdout, ground(), binDir, logDir)
	w.hubs = hubs
	defer func() { err = errors.Join(err, w.close(), stack.CheckLogs(logDir)) }()

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
		w.printUsage(on)
		<-ctx.Done()
	}
	return nil
}
