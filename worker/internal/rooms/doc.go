// SPDX-License-Identifier: Apache-2.0

// Package rooms keeps the rooms and floors that the hub gives this cluster's scaling groups, for a hub that divides maxReplicas and
// minReplicas over clusters.
//
// In: calls of the hub, and what the autoscaler sees and decides. Out: the room and floor of each group, and what is held. Package
// allotments decides.
//
//   - Rooms limit growth from the hub's first Welcome that says so on, and no longer after one that does not (package agent, which keeps
//     that in the ConfigMap atoll-worker-state). Without a hub nothing is limited.
//   - Rooms are in memory alone; because a new incarnation must not grow before the hub has confirmed them. While the hub is away they stay
//     as they are (I8).
//   - A floor is this cluster's part of a group's minReplicas. It is kept as last told, in memory alone; a group keeps all of its
//     minReplicas before it is told a part, or where the hub tells none.
//   - The autoscaler promises a growth before it writes it. A room that shrinks in between refuses the promise; a promise that was made
//     counts as held: TestAPromiseCounts.
//   - An Env that was not looked at yet is told as unknown, so that what it holds is not taken for nothing: TestUnknownEnvsAreTold.
package rooms
