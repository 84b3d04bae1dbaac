// SPDX-License-Identifier: Apache-2.0

// Package crowd simulates the workers of many clusters in one process, to measure a hub with thousands of workers.
//
// Real are TCP, mutual TLS, gRPC, link.Run with its back-off, and the protocol: hello, incarnation, complete reports in chunks,
// deltas, digests, heartbeats, receipts, answers. The cluster is simulated: the bench defines its Envs, and a claim succeeds at
// once with a sandbox that does not exist.
package crowd
