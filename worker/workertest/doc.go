// SPDX-License-Identifier: Apache-2.0

// Package workertest runs workers inside a test's process, on simulated clusters.
//
// Real: the agent, claims, leader election, package sync's merge, client-go's REST client and informers, package sandbox, wired as in
// worker/internal/runner/run.go.
//
// Simulated: the API server with its etcd, the kubelet, and the reconciler of pools, because the code under test must meet slow responses,
// 429s, lost responses, late writes, lagging watches, a restored etcd, and killed processes.
//
// A Cluster outlives its Workers. Its journal of sandboxes is written from etcd's changes alone, because tests compare the workers'
// responses with it.
//
// All waiting is visible to testing/synctest.
package workertest
