// SPDX-License-Identifier: Apache-2.0

// Package autoscale carries out, in one cluster, the decisions of pkg/scalepolicy about the scaling groups of its Envs.
//
// In: Envs, pools, Pods, claim queues, refused Pods. Out: replicas of members, marks on idle Pods, status.autoscaling, the annotation
// last-sandbox-create-time, and an Outlook for the agent: which members can grow, and how long each is saturated.
//
// It runs on the leader, and reconciles whole Envs, because groups share ceilings. It decides after each change, when time changes a
// decision, and every 10 s. It decides at most every 250 ms, except for a first claim.
//
//	reconciler.go  when an Env is decided, and the steps
//	act.go         replicas, and marks on idle Pods
//	report.go      status.autoscaling, the annotation, Events
//	gather.go      the input of a decision
//	outlook.go     whether a pool can grow, for the agent
//	memory.go      what is kept between reconciles
//	metrics.go
//
// # Rules
//
//   - Only package pool deletes Pods. This package marks idle Pods and lowers replicas after their window; a claim clears the mark. If it
//     comes after that, replicas are raised again; the pool waits 10 s for this: TestAMarkedPodThatIsClaimedIsKept,
//     TestReplicasAreRaisedAgainForPodsClaimedLate.
//   - A member whose pool does not have the Env's replicas is not scaled; because another writer may have set them (package replicas):
//     TestContestedReplicasAreLeftAlone.
//   - A member without a pool, or with another controller's, counts in the limits and is not scaled: TestMembersWhosePoolIsAwayCount,
//     TestWhatAnotherControllerKeepsIsLeftAlone.
//   - A restart loses no cooldown; because the pool's status has it. Queues count only when claims are served.
//   - Admission is probed for the largest admitted number, and then asked for the number that is written.
//   - A member can grow if it is below its ceilings, not saturated, and has no Pod that is 2 min late or refused:
//     TestMissingPodsThatAreRefusedAreStuck.
//   - A member is saturated while the last refusal holds it back. Claims that would wait longer for an empty pool are refused:
//     TestPartialAdmissionSaturates, TestRefusedPodsSaturate.
//   - At rest nothing is written: TestNothingIsWrittenAtRest. A change of only idleZeroSince or observedGeneration is written after 5 s;
//     because idle Pods come and go. In enabled groups, the annotation is written after a request, at most every 5 s. A repeated refusal is
//     written only while a claim waits.
//
// # Invariants
//
//   - I6, I9: pkg/scalepolicy keeps them.
//   - I10: enabled groups' pools and idle Pods bound the memory: TestMemoryIsBoundedByPools.
//   - I11: times start at the API server's and advance monotonically: TestSteadyTimeDoesNotStep, TestTimesAreWrittenByTheServersClock. At a
//     start, a time in the future becomes the present and runs down: TestTimesInTheFutureRunDown.
//   - I11: a mark's age counts from when this process first sees it, so its window ends at most one window late. A Pod's idle time is on
//     the Pod.
package autoscale
