// SPDX-License-Identifier: Apache-2.0

// Command atoll-sandboxd serves the processes and files of a sandbox to E2B clients, from inside.
//
//	atoll-sandboxd [--listen ADDRESS] [-- COMMAND ARGUMENT...]
//	atoll-sandboxd --install DIRECTORY
//
// As PID 1 it starts itself once more to serve, runs the image's command if there is one, forwards signals to both, and reaps orphaned
// processes. Its exit code is the command's. With --install it copies itself and ends, for a Pod's init container.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"navix.sh/atoll/api/envd"
	"navix.sh/atoll/pkg/version"
	"navix.sh/atoll/sandboxd/internal/daemon"
	"navix.sh/atoll/sandboxd/internal/pid1"
)

const shutdownTimeout = 2 * time.Second

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "atoll-sandboxd:", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	flags := pflag.NewFlagSet("atoll-sandboxd", pflag.ContinueOnError)
	// Port-forwards reach loopback; other hosts in the network do not.
	listen := flags.String("listen", net.JoinHostPort("127.0.0.1", strconv.Itoa(envd.Port)),
		"address to serve at, or unix:PATH; tunnels reach loopback")
	init := flags.Bool("init", os.Getpid() == 1, "do the duties of PID 1")
	into := flags.String("install", "", "copy this program to a directory, for every user to run, and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return 0, nil
		}
		return 2, err
	}
	if *into != "" {
		if err := install(*into); err != nil {
			return 1, err
		}
		return 0, nil
	}
	if *init {
		self, err := os.Executable()
		if err != nil {
			return 1, fmt.Errorf("finding this program: %w", err)
		}
		return pid1.Run([]string{self, "--init=false", "--listen", *listen}, flags.Args())
	}
	if flags.NArg() > 0 {
		return 2, fmt.Errorf("a command (%q) needs --init", flags.Arg(0))
	}
	if err := serve(*listen); err != nil {
		return 1, err
	}
	return 0, nil
}

func serve(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	lis, err := net.Listen(network, address)
	if err != nil {
		return fmt.Errorf("listening at %s: %w", address, err)
	}
	d := daemon.New(daemon.Options{Version: version.Version})
	server := &http.Server{Handler: d, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: daemon.MaxHeaderBytes,
		IdleTimeout: 5 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(lis) }()
	select {
	case err := <-failed:
		d.Close()
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	d.Close() // ends the streams
	late, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	_ = server.Shutdown(late)
	return nil
}
