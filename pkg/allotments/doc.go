// SPDX-License-Identifier: Apache-2.0

// Package allotments divides the maxReplicas of a scaling group over the clusters that have members of it (I9). It is pure.
//
// In: what clusters say that they hold and need. Out: rooms. The hub has a Book for each group, each worker a Holder.
//
//   - A room is the number up to which a cluster may grow a group. Held are, member by member, the larger of replicas and live Pods.
//   - A share has its room and the most that its cluster may hold. That is more than the room while the cluster has not confirmed a smaller
//     one, and while it holds more. A room rises only while the sum of the most stays within the group's maxReplicas.
//   - The hub writes a Book before it sends rooms, under an epoch that ends with another leader. It addresses rooms to an incarnation that
//     it has written. A worker takes calls of its incarnation alone, in order of (epoch, number), and each has all its rooms: so the room
//     that a confirmation names is the one that holds, whatever was lost, repeated or reordered.
//   - A new incarnation has no rooms, and does not grow before it is given some; because etcd may have been restored.
//   - What a cluster holds when it joins, or after maxReplicas was lowered, counts and stays (I6). No cluster grows until the sum
//     fits again.
//   - A cluster that is away keeps its share; one that was forgotten as well, until an operator reclaims it.
//   - If clusters differ in maxReplicas, as during a rollout, the smallest of those that respond holds.
//
// # Division
//
// Each cluster gets what it needs, up to an equal share where that is not enough for all; what is left over is divided equally, so that a
// cluster can grow without asking first. Rooms change only if a cluster needs more than it has, if they are too many together, or if some
// of maxReplicas is not given out; because each change is a write.
//
// # Invariants
//
//   - I9: TestI9Simulated runs hub, workers and operators against partitions, lost, repeated and reordered messages, restarts, two leaders,
//     clusters that are forgotten and join again, and changes of maxReplicas.
package allotments
