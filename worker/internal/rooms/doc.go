// SPDX-License-Identifier: Apache-2.0

// Package rooms keeps the rooms and floors that the hub allots to this cluster's scaling groups, if the hub divides maxReplicas and
// minReplicas over clusters.
//
// In: calls of the hub, and the autoscaler's observations and decisions. Out: the room and floor of each group, and what is held. Package
// allotpolicy decides.
//
//   - Rooms limit growth from the hub's first Welcome that says so, until one that does not (package agent, which stores that in the
//     ConfigMap atoll-worker-state). Without a hub nothing is limited.
//   - Rooms are only in memory; because a new incarnation must not grow before the hub has confirmed them. While the hub is away they stay
//     as they are (I8).
//   - A floor is this cluster's part of a group's minReplicas. The last one is kept, only in memory. A group keeps all of its minReplicas
//     before the hub sends a part, or if it sends none.
//   - The autoscaler promises a growth before it writes it. A room that shrinks in between refuses the promise; a promise that was made
//     counts as held: TestAPromiseCounts.
//   - An Env that was not observed yet is reported as unknown, so that its holdings do not count as zero: TestUnknownEnvsAreTold.
package rooms
