// SPDX-License-Identifier: Apache-2.0

// Package allotments divides the maxReplicas and minReplicas of a scaling group over the clusters that have members of it (I9). It is pure.
//
// In: what clusters say that they hold and need. Out: rooms and floors. The hub has a Book for each group, each worker a Holder.
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
// # Floors
//
//   - Each cluster keeps an equal part of minReplicas, as far as its room goes; what has no room there is another's.
//   - What a cluster that is lost keeps, the others keep as well, within their rooms, until it is back and holds that itself.
//   - An equal part counts as need when rooms are divided. A worker does not tell it as its own need: what it was told a moment ago would
//     come back as need, and room would go to and fro.
//   - If clusters differ in minReplicas, the largest of those that respond is divided, and none keeps more than its own: so the word of one
//     makes no other keep more than its users ask for (I15).
//   - A worker keeps what it was last told, also while the hub is away. Before it is told anything, and under a hub that tells nothing, it
//     keeps all of its minReplicas, as far as its room goes. A new incarnation has no rooms: it does not grow to that, and does not
//     shrink below it.
//   - TestFloors, and TestI9Simulated, in which a cluster is lost in the end and comes back.
//
// # Invariants
//
//   - I9: TestI9Simulated runs hub, workers and operators against partitions, lost, repeated and reordered messages, restarts, two leaders,
//     clusters that are forgotten and join again, and changes of maxReplicas.
package allotments
