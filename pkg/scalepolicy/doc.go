// SPDX-License-Identifier: Apache-2.0

// Package scalepolicy decides how many Pods each member of a scaling group has. It is pure. The worker and the simulator (pkg/simulate)
// share it.
//
// In: a Group of one Env in one cluster. Out: a Decision: replicas, marks and status.autoscaling of each member, and what stopped a change.
//
// Callers then act. To grow: Search (if Probe is set), write and Record. To shrink: mark, write and RecordDown.
//
// TestDecide/NAME has the cases of testdata/NAME. The decision does not depend on the order of the members: TestDecideKeepsLimits.
//
// # Growth
//
// The gates, in order: the group is enabled; replicas are raised to live Pods and floors; success cooldown; saturation cooldown; a trigger;
// yielding to a preferred sibling; the mode's step; ceilings of member and group; room. Each has a file in testdata. Search asks
// admission for all of the growth, then for halves: TestSearchFindsTheGreatest, TestSearchEnds.
//
// Triggers: unmet demand (claims wait for which no Pod is idle or starting: TestDecide/demand); idle zero (no Pod has been idle for
// idleThresholdSeconds, and there was a recent create: TestDecide/idle-threshold, TestDecide/quiet-window).
//
//   - The step does not depend on the size of the demand; because a step is only taken while no Pod starts: TestDecide/mode,
//     TestDecide/demand.
//   - Members are decided in order of preference; so the preferred member gets what the ceilings still allow: TestDecide/yield.
//   - Unmet demand does not yield; because claims wait for their own pool: TestDecide/yield.
//   - Growth ahead of demand yields to a sibling that has idle Pods, has starting Pods that are not stuck, or has creates and room and
//     grows itself, now or after its idleThresholdSeconds; because the next claim goes there. It does not yield to a sibling whose Pods
//     never become ready: TestDecide/yield.
//
// # Shrinking
//
//   - Only Pods that have been idle for idleTimeoutSeconds are removed, never below a floor. Pods that are not ready go first, then those
//     that have been idle longest: TestDecide/idle-timeout, TestDecide/min, TestDecide/readiness.
//   - A batch consists of the Pods with the highest scaleDownPriority that has Pods to remove. It has at most 250 Pods:
//     TestABatchIsBounded. Lower priorities also wait for its stabilizationSeconds: TestDecideShrinksByPriority,
//     TestDecide/scale-down-priority, TestDecide/stabilization.
//   - A Pod is marked first. After protectionWindowSeconds, replicas are lowered by the number of marked Pods that are still idle, and the
//     pool's reconciler deletes these Pods: TestDecide/window.
//   - A claim removes the mark, so that replicas keep that Pod. If replicas were already lowered, they rise to the number of unmarked Pods;
//     so no other Pod is deleted instead: TestDecide/window, TestDecide/running, TestAMarkedPodThatIsClaimedIsKept of package autoscale.
//   - While recent creates allow growth ahead of demand, one idle Pod is kept, a ready one if possible: TestDecide/quiet-window,
//     TestDecide/readiness.
//
// # Invariants
//
//   - I6: replicas never go below the number of Pods that run, start or stop: TestDecideKeepsLimits.
//   - I9: held Pods (the larger of replicas and live Pods; replicas if the pool is away) do not grow beyond maxReplicas or the room.
//     Lowering a limit removes nothing: TestDecideKeepsLimits, TestDecide/away, TestDecide/max, TestDecide/room. Sums do not overflow:
//     TestHugeReplicasRaiseNoMember.
//   - I11: times are those of the API server; a time in the future counts as now: TestDecide/cooldown.
package scalepolicy
