// SPDX-License-Identifier: Apache-2.0

// Package rooms keeps the rooms that the hub gives this cluster's scaling groups, for a hub that divides maxReplicas over clusters.
//
// In: calls of the hub, and what the autoscaler sees and decides. Out: the room of each group, and what is held. pkg/allotments decides.
//
//   - Rooms limit growth from the hub's first Welcome that says so on, and no longer after one that does not (package agent, which keeps
//     that in the ConfigMap atoll-worker-state). Without a hub nothing is limited.
//   - Rooms are in memory alone; because a new incarnation must not grow before the hub has confirmed them. While the hub is away they stay
//     as they are (I8).
//   - The autoscaler promises a growth before it writes it. A room that shrinks in between refuses the promise; a promise that was made
//     counts as held: TestAPromiseCounts.
//   - An Env that was not looked at yet is told as unknown, so that what it holds is not taken for nothing: TestUnknownEnvsAreTold.
package rooms
