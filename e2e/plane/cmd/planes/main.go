// SPDX-License-Identifier: Apache-2.0

// Command planes runs control planes until Ctrl-C, for manual inspection:
//
//	go run ./e2e/plane/cmd/planes east west
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"navix.sh/atoll/e2e/plane"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	opts := plane.Options{}
	flag.IntVar(&opts.Nodes, "nodes", 2, "nodes of each plane")
	flag.BoolVar(&opts.AuditLog, "audit", false, "record all requests to the API servers in audit.log, below -logs")
	flag.StringVar(&opts.LogDir, "logs", "", "directory that receives the logs and keeps them")
	onlyBinaries := flag.Bool("binaries", false, "only obtain the binaries, and print the directory that holds them")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: planes [flags] NAME...")
		flag.PrintDefaults()
	}
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *onlyBinaries {
		dir, err := plane.Binaries(ctx, opts)
		if err != nil {
			return fmt.Errorf("obtaining binaries: %w", err)
		}
		fmt.Println(dir)
		return nil
	}
	set, err := plane.Up(ctx, opts, flag.Args()...)
	if err != nil {
		return err
	}
	for _, p := range set.Planes() {
		fmt.Printf("%s: %s --kubeconfig %s\n", p.Name, set.KubectlPath(), p.Kubeconfig())
	}
	fmt.Println("Ctrl-C takes them down.")
	<-ctx.Done()
	if err := set.Down(context.Background()); err != nil {
		return fmt.Errorf("taking the planes down: %w", err)
	}
	return nil
}
