// SPDX-License-Identifier: Apache-2.0

// Package autoscale carries out, in one cluster, what pkg/scalepolicy decides about the scaling groups of its Envs.
//
// In: Envs, pools and Pods from the manager's cache, the live queues of the claim service, and the Pods that the API server
// refused. Out: replicas of members in Envs, marks on idle Pods, status.autoscaling of pools, the annotation
// last-sandbox-create-time, and an Outlook for the agent: which members can grow, and which are saturated for how long.
//
//	gather ─▶ scalepolicy.Decide ─▶ act (ask admission, write the Env, mark Pods) ─▶ report (status, events, metrics)
//
// It runs on the leader. It reconciles an Env when a queue or an idle Pod of its pools changes, when the Env or a pool changes,
// when time alone changes a decision, and every 10 s. It does so every 250 ms at most, except for the first claim that waits. It
// decides per Env, not per pool, because groups share ceilings.
//
// # Rules
//
//   - Only package pool deletes Pods. This package marks idle Pods, and lowers replicas after their window. The pool then has too
//     many Pods and deletes the marked ones first. A claim clears the mark in its own write. If the claim is faster than the
//     pool, more unmarked Pods are left than replicas, and replicas are raised again; the pool waits 10 s for that before it
//     chooses a Pod: TestAMarkedPodThatIsClaimedIsKept, TestReplicasAreRaisedAgainForPodsClaimedLate.
//   - A write of replicas (replicas.Set) tests the value that it was decided from.
//   - A member whose pool does not have the Env's replicas yet is not scaled; because they may be another writer's, which package
//     env repairs, or accepts if that writer repeats them (replicas.Contests): TestContestedReplicasAreLeftAlone.
//   - A member whose pool is absent, or kept by another controller, counts in the group's limits and is not scaled:
//     TestMembersWhosePoolIsAwayCount, TestWhatAnotherControllerKeepsIsLeftAlone.
//   - A restart loses no cooldown; because cooldowns are in the pool's status. Nothing is decided from queues before claims are
//     served.
//   - Admission is asked with a probe while the largest admitted number is searched for, and once more, without a probe, for the
//     number that is then written.
//   - A member can grow if a waiting claim would make it grow: it is below its ceilings, it is not saturated, and it has no Pod
//     that should have been ready 2 min ago or that is missing because it was refused: TestMissingPodsThatAreRefusedAreStuck.
//   - A member is saturated for as long as the last refusal holds it back. A claim that would wait longer than that for a pool
//     without Pods is refused by the claim queue: TestPartialAdmissionSaturates, TestRefusedPodsSaturate.
//   - At rest nothing is written: TestNothingIsWrittenAtRest. A change of idleZeroSince or observedGeneration alone is written
//     only once it has lasted 5 s; because idle Pods of a busy pool come and go. The annotation is written every 5 s at most,
//     only after a new request for a sandbox, and only in enabled groups, its only readers. Refused Pods are retried; the same
//     refusal is written again only while a claim waits.
//
// # Invariants
//
//   - I6, I9: pkg/scalepolicy keeps them.
//   - I10: memory is bounded by the pools of enabled groups and their idle Pods: TestMemoryIsBoundedByPools.
//   - I11: times are measured on the monotonic clock, from the API server's time at the start of this process:
//     TestSteadyTimeDoesNotStep, TestTimesAreWrittenByTheServersClock. Times in a status are of that clock. A step of the API
//     server's clock is therefore not seen until the next start, where a time in the future becomes the time of the start, is
//     written so, and runs down: TestTimesInTheFutureRunDown.
//   - I11: a mark is timed from when this process first saw it: late by one window at most, never early. How long a Pod has been
//     idle is durable: the API server's time is on the Pod, and is compared once with the same clock.
package autoscale
