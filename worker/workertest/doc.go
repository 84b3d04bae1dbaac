// SPDX-License-Identifier: Apache-2.0

// Package workertest runs workers inside a test's process, on clusters that are simulated just far enough for them.
//
// What is real: the agent, the claim service, the lease and client-go's leader election, the merge of what the hub tells,
// client-go's REST client and informers, package sandbox. They are wired as worker/run.go wires them.
//
// What is played: the API server with its etcd (get, list, watch, create, update, delete with preconditions, JSON patches
// with their tests), the kubelet, and the reconciler of pools, whose own rules about pace and counts have their tests on
// real API servers. That protocol code meets an API server's true behaviour is tested there as well; here it meets, a
// thousand times faster, its slowness, its 429s, answers that get lost, writes that arrive late, watches that lag, an etcd
// set back, and processes killed between any two steps.
//
// A Cluster outlives its Workers. Its journal of sandboxes is written from etcd's changes alone, so that a test can hold
// what was answered against what happened.
//
// Everything waits in ways that testing/synctest knows, and times are the bubble's.
package workertest
