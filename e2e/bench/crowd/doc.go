// SPDX-License-Identifier: Apache-2.0

// Package crowd simulates thousands of workers in one process.
//
// TCP, mutual TLS, gRPC, link.Run with back-off, and the protocol are real. The cluster is not: the bench defines its Envs, and claims
// succeed at once.
package crowd
