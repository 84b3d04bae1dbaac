// SPDX-License-Identifier: Apache-2.0

// Package provider is a multicluster-runtime Provider. It provides the clusters of a hub to controllers that run on several clusters.
//
// In: the hub's list of clusters, and access to each cluster's API server. Out: engaged and disengaged clusters.
//
//	decide.go   pure: which clusters are engaged, by the hub's list
//	provider.go Provider
//
// # Rules
//
//   - A cluster is engaged once it is attached, and stays engaged while it is silent. It is disengaged when it is drained, quarantined or
//     no longer registered, or when another cluster has its name: TestDecide.
//   - If listing fails, nothing changes (I5).
//   - A cluster is engaged after its API server has responded, in a goroutine of its own; because Engage of multicluster-runtime v0.24.1
//     blocks for all clusters while one API server is silent, and an error of Engage would end the manager:
//     TestASilentClusterHoldsUpNoOther. Indexes are added there too, without the lock: TestAnAPIServerThatFallsSilentHoldsUpNoOther.
//   - A cluster that is gone keeps no connection: TestAControllerOverClustersThatComeAndGo, under the manager of multicluster-runtime.
//   - Options.Config returns direct access to the API server, or access through the hub: Host https://HUB/v1/clusters/ID/proxy with a token
//     of the hub (docs/fleets.md).
package provider
