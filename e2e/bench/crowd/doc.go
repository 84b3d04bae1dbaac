// SPDX-License-Identifier: Apache-2.0

// Package crowd plays the workers of many clusters in one process, to measure a hub that has thousands of them.
//
// What is real: TCP, mutual TLS, gRPC, link.Run with its back-off, and the protocol: hello, incarnation, complete reports in
// chunks, deltas, digests, heartbeats, receipts, answers. What is played: the cluster. Its Envs are what the bench says, and
// a claim is answered at once with a sandbox that does not exist.
package crowd
