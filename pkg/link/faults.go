// SPDX-License-Identifier: Apache-2.0

//go:build !atolltest

package link

import "google.golang.org/grpc"

// Streams of programs that are shipped have no faults of their own.

func clientFaults() []grpc.DialOption { return nil }

func serverFaults() []grpc.StreamServerInterceptor { return nil }
