// SPDX-License-Identifier: Apache-2.0

//go:build !atolltest

package link

import "google.golang.org/grpc"

// Streams of released programs have no injected faults.

func clientFaults() []grpc.DialOption { return nil }

func serverFaults() []grpc.StreamServerInterceptor { return nil }
