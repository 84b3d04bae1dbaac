// SPDX-License-Identifier: Apache-2.0

// Package scalepolicy decides how many Pods each member of a scaling group has. It is pure. The worker and the simulator (pkg/simulate)
// share it.
//
// In: a Group of one Env in one cluster. Out: a Decision: replicas, marks and status.autoscaling of each member, and what stopped a change.
//
// Callers then act. To grow: Search (if Probe is set), write and Record. To shrink: mark, write and RecordDown.
//
// # Growth
//
// The gates, in order: the group is enabled; replicas are raised to live Pods and floors; success cooldown; saturation cooldown; a trigger;
// yielding to a preferred sibling; the mode's step; ceilings of member and group; room. Search asks admission for all of the growth, then
// for halves.
//
// Triggers: unmet demand (claims wait for which no Pod is idle or starting); idle zero (no Pod has been idle for idleThresholdSeconds, and
// there was a recent create).
//
//   - The step does not depend on the size of the demand; because a step is only taken while no Pod starts.
//   - Members are decided in order of preference; so the preferred member gets what the ceilings still allow.
//   - Unmet demand does not yield; because claims wait for their own pool.
//   - Growth ahead of demand yields to a sibling that has idle Pods, has starting Pods that are not stuck, or has creates and room and
//     grows itself, now or after its idleThresholdSeconds; because the next claim goes there. It does not yield to a sibling whose Pods
//     never become ready.
//
// # Shrinking
//
//   - Only Pods that have been idle for idleTimeoutSeconds are removed, never below a floor. Pods that are not ready go first, then those
//     that have been idle longest.
//   - A batch consists of the Pods with the highest scaleDownPriority that has Pods to remove. Lower priorities also wait for its
//     stabilizationSeconds.
//   - A Pod is marked first. After protectionWindowSeconds, replicas are lowered by the number of marked Pods that are still idle, and the
//     pool's reconciler deletes these Pods.
//   - A claim removes the mark, so that replicas keep that Pod. If replicas were already lowered, they rise to the number of unmarked Pods;
//     so no other Pod is deleted instead.
//   - While recent creates allow growth ahead of demand, one idle Pod is kept, a ready one if possible.
//
// # Invariants
//
//   - I6: replicas never go below the number of Pods that run, start or stop: TestDecideKeepsLimits.
//   - I9: held Pods (the larger of replicas and live Pods; replicas if the pool is away) do not grow beyond maxReplicas or the room.
//     Lowering a limit removes nothing: TestDecideKeepsLimits.
//   - I11: times are those of the API server; a time in the future counts as now.
package scalepolicy
