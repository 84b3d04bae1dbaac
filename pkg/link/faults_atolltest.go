// SPDX-License-Identifier: Apache-2.0

//go:build atolltest

package link

import (
	"fmt"
	"os"
	"sync"

	"google.golang.org/grpc"

	"navix.sh/atoll/pkg/link/linkfaults"
)

// faults are the faults that tests configure. There is one source per process, because a new source for each connection would fail the same
// first frames of every connection.
var faults = sync.OnceValue(func() *linkfaults.Source {
	setting := os.Getenv("ATOLL_TEST_LINK_FAULTS")
	if setting == "" {
		return nil
	}
	source, err := linkfaults.New(setting)
	if err != nil {
		// A test whose expected faults are missing would prove nothing.
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return source
})

func clientFaults() []grpc.DialOption {
	source := faults()
	if source == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithChainStreamInterceptor(source.Client())}
}

func serverFaults() []grpc.StreamServerInterceptor {
	source := faults()
	if source == nil {
		return nil
	}
	return []grpc.StreamServerInterceptor{source.Server()}
}
