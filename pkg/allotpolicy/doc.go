// SPDX-License-Identifier: Apache-2.0

// Package allotpolicy divides the maxReplicas and minReplicas of a scaling group among the clusters that have members of it (I9). It is
// pure.
//
// In: what clusters report that they hold and need. Out: rooms and floors. The hub has a Record for each group, each worker a Holder.
//
//   - A room is the number of Pods up to which a cluster may grow a group. A cluster holds, for each member, the larger of replicas and
//     live Pods.
//   - A share consists of the room and of the most that its cluster may hold. The latter exceeds the room until the cluster has confirmed a
//     smaller room, and while it holds more. A room is raised only while the sum of these maxima stays within the group's maxReplicas:
//     TestDivide, TestI9Simulated.
//   - The hub stores a Record before it sends rooms, under an epoch that ends when another leader starts. It sends rooms to an incarnation
//     only after it has stored that incarnation. A worker accepts only calls for its own incarnation, in order of (epoch, number), and each
//     call contains all its rooms: so the room that a confirmation names is in force, whatever was lost, repeated or reordered:
//     TestI9HolderFollowsTheLatestCall; TestI9RoomsAreStoredBeforeTheyAreSent and TestI9AnEarlierLeaderWritesNothing of package allotment.
//   - A new incarnation has no rooms, and does not grow until it receives some; because etcd may have been restored:
//     TestI9HolderFollowsTheLatestCall.
//   - Pods that are being deleted, and a write with an unknown outcome, count as held: TestHolderCounts, TestHolderCountsHugeNumbers.
//   - What a cluster holds when it joins, or after maxReplicas was lowered, counts and is kept (I6). No cluster grows until the sum fits
//     again: TestDivide.
//   - A cluster that is away keeps its share: TestDivide. So does a forgotten cluster, until an operator reclaims the share:
//     TestI9ForgottenClusters.
//   - If clusters differ in maxReplicas, as during a rollout, the smallest value of the clusters that respond applies: TestDivide.
//
// # Division
//
// Each cluster gets what it needs, up to an equal share if there is not enough for all. The remainder is divided equally, so that a cluster
// can grow without asking first. Rooms change only if a cluster needs more than it has, if the sum of the rooms is too large, or if some of
// maxReplicas is not assigned; because each change is a write: TestDivide.
//
// # Floors
//
//   - Each cluster keeps an equal part of minReplicas, as far as its room allows. A part that does not fit there is assigned to another
//     cluster: TestFloors.
//   - The other clusters keep the part of a lost cluster as well, within their rooms, until it is back and holds that part itself:
//     TestFloors, TestI9Simulated.
//   - The equal part counts as need when rooms are divided: TestFloorsAreNeed. A worker does not report it as its own need; because the
//     part that it was just assigned would come back as need, and rooms would oscillate: TestDemand of package scalepolicy.
//   - If clusters differ in minReplicas, the largest value of the clusters that respond is divided, and no cluster keeps more than its own
//     value: so one cluster cannot make another keep more than its users ask for (I15): TestFloors.
//   - A worker keeps the part that it was last assigned, even while the hub is away. Until it is assigned a part, and under a hub that
//     assigns none, it keeps all of its minReplicas, as far as its room allows: TestHolderKeepsItsFloor, TestDecide/min of package
//     scalepolicy. A new incarnation has no rooms: it does not grow to its minReplicas, and does not shrink below it:
//     TestANewIncarnationKeepsItsMinReplicas.
//
// # Invariants
//
//   - I9: TestI9Simulated runs a hub, workers and operators with partitions, lost, repeated and reordered messages, restarts, two leaders,
//     clusters that are forgotten and join again, and changes of maxReplicas. At the end a cluster is lost and comes back.
package allotpolicy
