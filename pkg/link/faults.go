// SPDX-License-Identifier: Apache-2.0

//go:build !atolltest

package link

import "google.golang.org/grpc"

// Released programs inject no faults into streams.

func clientFaults() []grpc.DialOption { return nil }

func serverFaults() []grpc.StreamServerInterceptor { return nil }
