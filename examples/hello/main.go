// SPDX-License-Identifier: Apache-2.0

// Command hello is the smallest program for a sandbox: it responds on port 8000 with its Pod's name.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	host, err := os.Hostname()
	if err != nil {
		host = "a Pod without a name"
	}
	started := time.Now().Format(time.RFC3339)
	server := http.Server{
		Addr: ":8000", ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "Hello from %s, running since %s.\n", host, started)
		}),
	}
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}
