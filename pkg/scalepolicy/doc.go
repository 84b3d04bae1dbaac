// SPDX-License-Identifier: Apache-2.0

// Package scalepolicy decides how many Pods each member of a scaling group has. It is pure: no clock, no network, no client.
// The worker carries out its decisions. The simulator (pkg/simulate) drives the same Decide over simulated days in seconds.
//
// In goes a Group: one scaling group of one Env in one cluster, at one moment. Out comes a Decision: for each member the
// replicas, the idle Pods to mark or unmark, the pool's new status.autoscaling, and every gate that stopped a change, with a
// message.
//
//	d := Decide(group)
//	for each member with d.Direction == Up:   outcome := Search(ctx, from, to, ask) if d.Probe; write; Record
//	for each member with d.Mark or d.Unmark:  write the marks
//	for each member with d.Direction == Down: write d.To; RecordDown
//
// # Growth
//
// The gates, in order: the group is enabled; raise replicas to the live Pods and to the floors; the success cooldown; the
// saturation cooldown; a trigger; yield to a preferred sibling; the step of the mode; the ceilings of member and group; room.
// Search then asks admission for the rest, first as a whole, then by halves.
//
// There are two triggers. Unmet demand: claims wait, and no Pod is idle or starting for them. Idle zero: no Pod has been idle
// for idleThresholdSeconds, and a create is recent.
//
//   - The step ignores the size of the demand; because no Pod may be starting when it is taken, so a mode cannot run away.
//   - A member with unmet demand does not yield; because a claim waits for Pods of one pool, and no other member's growth
//     serves it. Decide takes members in the order of their preference, so the preferred member gets the ceilings' remainder
//     first.
//   - A member that grows ahead of demand yields to a sibling that has idle Pods, or has Pods starting that are not stuck, or
//     has room and grows itself, now or after its own idleThresholdSeconds; because the next claim is routed there.
//   - A member does not yield to a sibling with room but without creates, nor to one whose Pods never get ready; because
//     neither will have a Pod for the next claim.
//
// # Shrinking
//
// Only Pods that were idle for idleTimeoutSeconds are removed, and never below a floor.
//
//   - One batch has Pods of one scaleDownPriority: the highest among the members that have Pods to remove. A member that has
//     Pods to remove and waits for stabilizationSeconds makes lower priorities wait too.
//   - Pods that are not ready go first, then the longest idle.
//   - A Pod is marked first. After protectionWindowSeconds replicas go down by the number of marked Pods that are still idle,
//     and the pool's reconciler deletes the marked Pods.
//   - A claim removes the mark. If the claim comes first, replicas are not lowered for that Pod. If it comes after, unmarked
//     Pods exceed replicas, and replicas are raised to the unmarked Pods; so no other Pod is deleted in its place.
//   - While creates are recent enough for growth ahead of demand, one idle Pod stays, a ready one if there is one; because
//     growth would create it again at once.
//
// # Invariants
//
//   - I6: replicas never go below the Pods that run, start or stop; held by TestDecideKeepsLimits.
//   - I9: held Pods do not grow past the group's maxReplicas or the room; held by TestDecideKeepsLimits. A member holds
//     max(replicas, live Pods); a member whose pool is away holds its replicas. Lowering a limit stops growth and removes
//     nothing.
//   - I11: all times are of one clock, the caller's, which is the API server's. A time in the future counts as now.
package scalepolicy
