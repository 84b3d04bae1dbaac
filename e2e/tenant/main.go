// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

var tag = "unknown"

const headerTimeout = 10 * time.Second

func main() {
	port := flag.Int("port", 8000, "where to answer")
	flag.StringVar(&tag, "tag", tag, "which image this is")
	flag.Parse()
	// A signal without a handler does not end the first process of a PID namespace.
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-term
		os.Exit(0)
	}()
	if err := run(*port, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "tenant:", err)
		os.Exit(2)
	}
}

func run(port int, args []string) error {
	mode := "serve"
	if len(args) > 0 {
		mode = args[0]
	}
	switch mode {
	case "serve":
		return serve(port)
	case "linger":
		select {}
	case "exit":
		if len(args) != 2 {
			return fmt.Errorf("exit: want a code")
		}
		code, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("exit: %w", err)
		}
		os.Exit(code)
	}
	return fmt.Errorf("no mode %q", mode)
}

func serve(port int) error {
	server := &http.Server{Addr: ":" + strconv.Itoa(port), Handler: handler(), ReadHeaderTimeout: headerTimeout}
	return server.ListenAndServe()
}
