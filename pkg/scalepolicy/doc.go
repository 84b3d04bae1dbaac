// SPDX-License-Identifier: Apache-2.0

// Package scalepolicy decides how many Pods the members of a scaling group have. It is pure: no clock, no network, no client.
// The worker carries its decisions out; a simulator drives the same Decide over days in seconds.
//
// In goes a Group: one scaling group of one Env in one cluster, at one moment. Out comes a Decision for each member: how
// many replicas, which idle Pods to mark or to unmark, what the pool's status.autoscaling becomes, and every gate that
// stopped it, with a text for people.
//
//	d := Decide(group)
//	for each member with d.Direction == Up:   outcome := Search(ctx, from, to, ask) if d.Probe; write; Record
//	for each member with d.Mark or d.Unmark:  write the marks
//	for each member with d.Direction == Down: write d.To; RecordDown
//
// # Growth
//
// Gates, in order: the group is enabled; replicas are raised to what is there and to the floors; the success cooldown; the
// saturation cooldown; a trigger; yield to a preferred sibling; the step of the mode; ceilings of member and group; room.
// Whatever is left is asked of admission by Search, as a whole and then by halves.
//
// A trigger is unmet demand, claims that wait and for which no Pod is idle or on its way, or no idle Pod for
// idleThresholdSeconds with a recent create. The step does not look at the demand; that no Pod may be on its way is what
// keeps a mode from running away.
//
// Claims that wait do so for Pods of one pool, and no other member's growth helps them. So a member with unmet demand does
// not yield: members are decided in the order of their preference, and the preferred one takes what the ceilings leave
// first. What yields is growth ahead of demand, to a sibling that has idle Pods, or Pods on their way that are not stuck, or
// that has room and takes it itself, now or once its own idleThresholdSeconds are over: the next claim is routed there. A
// sibling with room that nobody asks for anything takes none, and one whose Pods never get ready has nothing to hand out.
//
// # Shrinking
//
// Only Pods that were idle for idleTimeoutSeconds go, in batches of one scaleDownPriority, the highest of the members that
// have something to give, and never below a floor: those that are not ready before those that are, then the longest idle. One
// that has something to give and waits for stabilizationSeconds has the lower ones wait as well.
// They are marked first; after protectionWindowSeconds replicas go down by those that are still idle, and whoever deletes Pods
// takes the marked ones. A Pod that was claimed meanwhile lost its mark, and replicas are not lowered for it. If it was
// claimed after they were, there are more Pods without a mark than replicas, which are raised to what is there: so nothing
// else is deleted in its place.
//
// As long as creates are recent enough for growth ahead of demand, one idle Pod stays, a ready one if any is: it would be made
// again at once.
//
// # Invariants
//
// I6: replicas never go below the Pods that run, start or stop. I9: held, which is per member max(replicas, live Pods), and
// the replicas of one whose pool is away, grows past neither the group's maxReplicas nor the room; a limit that was lowered
// stops growth and shrinks nothing. I11: all times are of one clock, the caller's, which is the API server's; a time in the
// future counts as now.
package scalepolicy
