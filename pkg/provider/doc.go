// SPDX-License-Identifier: Apache-2.0

// Package provider is a multicluster-runtime Provider: the clusters of a hub, for controllers of others.
//
// In: the hub's list of clusters, and a way to each cluster's API server. Out: clusters engaged and disengaged.
//
//	decide.go   pure: which clusters are engaged, by the hub's list
//	provider.go Provider
//
// # Rules
//
//   - A cluster is engaged once it is attached, and kept while it is silent. It is disengaged when it is drained, quarantined or not in the
//     registry any more, or when another cluster has its name: TestDecide.
//   - A list that fails changes nothing (I5).
//   - A cluster is handed over once its API server has responded, by a goroutine of its own; because Engage of multicluster-runtime v0.24.1
//     blocks for all while one API server is silent, and an error of it would end the manager: TestASilentClusterHoldsUpNoOther.
//   - A cluster that is gone keeps no connection: TestAControllerOverClustersThatComeAndGo, under the manager of multicluster-runtime.
//   - Options.Config gives a direct way to the API server, or the one through the hub: Host
//     https://HUB/v1/clusters/ID/proxy with a token of the hub (docs/fleets.md).
package provider
