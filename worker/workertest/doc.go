// SPDX-License-Identifier: Apache-2.0

// Package workertest runs workers inside a test's process, on simulated clusters.
//
// Real: the agent, the claim service, the lease and client-go's leader election, the merge of the hub's segments, client-go's
// REST client and informers, package sandbox. They are wired as worker/run.go wires them.
//
// Simulated: the API server with its etcd (get, list, watch, create, update, delete with preconditions, JSON patches with their
// tests), the kubelet, and the reconciler of pools. Tests on real API servers cover the real reconciler's pace and counts, and
// the protocol code against an API server's true behaviour. Here the same code meets, a thousand times faster, slowness, 429s,
// lost responses, writes that arrive late, watches that lag, a restored etcd, and processes killed between any two steps.
//
// A Cluster outlives its Workers. Its journal of sandboxes is written from etcd's changes alone, so that a test can compare the
// responses with what happened.
//
// All waiting is visible to testing/synctest, and times are the bubble's.
package workertest
