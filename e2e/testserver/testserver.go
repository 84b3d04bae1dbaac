// SPDX-License-Identifier: Apache-2.0

// Package testserver serves on ports of loopback for one test.
package testserver

import (
	"context"
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"navix.sh/atoll/e2e/must"
)

// Listen listens on a free port.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	return listener
}

// Serve serves on a free port until the test ends, and returns the address. A server that ends with an error fails the test.
func Serve(t testing.TB, serve func(context.Context, net.Listener) error) (address string) {
	t.Helper()
	listener := Listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return listener.Addr().String()
}

// ServeGRPC is Serve for a gRPC server.
func ServeGRPC(t testing.TB, server *grpc.Server) (address string) {
	t.Helper()
	return Serve(t, func(ctx context.Context, listener net.Listener) error {
		context.AfterFunc(ctx, server.Stop)
		if err := server.Serve(listener); !errors.Is(err, grpc.ErrServerStopped) { // stopped before it served
			return err
		}
		return nil
	})
}

// Dial returns a connection without TLS, which is closed when the test ends.
func Dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
