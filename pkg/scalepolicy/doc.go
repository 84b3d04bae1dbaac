// SPDX-License-Identifier: Apache-2.0

// Package scalepolicy decides how many Pods each member of a scaling group has. It is pure. Worker and simulator (pkg/simulate) share it.
//
// In: a Group of one Env in one cluster. Out: a Decision: replicas, marks and status.autoscaling of each member, and what stopped a change.
//
// Callers then act: up by Search (if Probe), write and Record; down by marks, write and RecordDown.
//
// # Growth
//
// The gates, in order: the group is enabled; replicas up to live Pods and floors; success cooldown; saturation cooldown; a trigger; yield
// to a preferred sibling; the mode's step; ceilings of member and group; room. Search asks admission for the rest, whole, then by halves.
//
// Triggers: unmet demand (claims wait, no Pod is idle or starting for them); idle zero (no Pod idle for idleThresholdSeconds, and a recent
// create).
//
//   - The step ignores the demand's size; because it is taken while no Pod starts.
//   - Members decide in order of preference; so the preferred one gets the ceilings' remainder.
//   - Unmet demand does not yield; because claims wait for their own pool.
//   - Growth ahead of demand yields to a sibling that has idle Pods, has Pods starting that are not stuck, or has creates and room and
//     grows itself, now or after its idleThresholdSeconds; because the next claim goes there. It does not yield to one whose Pods never get
//     ready.
//
// # Shrinking
//
//   - Only Pods idle for idleTimeoutSeconds go, never below a floor; first those not ready, then the longest idle.
//   - A batch has the highest scaleDownPriority with Pods to remove; lower ones wait for its stabilizationSeconds too.
//   - A Pod is marked first. After protectionWindowSeconds replicas drop by the marked Pods still idle, which the pool's reconciler
//     deletes.
//   - A claim removes the mark: replicas keep that Pod, or after the drop rise to the unmarked Pods; so no other Pod is deleted instead.
//   - While recent creates allow growth ahead of demand, one idle Pod stays, a ready one if possible.
//
// # Invariants
//
//   - I6: replicas never go below Pods that run, start or stop: TestDecideKeepsLimits.
//   - I9: held Pods (max of replicas and live Pods; replicas if the pool is away) do not grow past maxReplicas or the room. Lower limits
//     remove nothing: TestDecideKeepsLimits.
//   - I11: times are the API server's; one in the future counts as now.
package scalepolicy
