// SPDX-License-Identifier: Apache-2.0

// Package claim hands out this cluster's Pods, each by one write to the API server.
//
// In: claims, from the hub and the local API, and the idle Pods of package inventory. Out: sandboxes, which package sandboxes
// manages from then on, or errors that say whether the claim may go to another cluster (package disposition). It keeps I1, I2 and
// I14.
//
//	create.go   a claim, from the call to its result
//	start.go    another Pod for a sandbox that ended before it ran
//	keys.go     what exists for a claim key
//	op.go       a claim under way
//	carry.go    a claim under way, to its end
//	wait.go     a Pod, now or from the queue
//	queue.go    the fair queue: which claim is next
//	write.go    the write on the Pod, and its result
//	decide.go   the pure decisions
//	service.go  the Service
//	locked.go   the state under the inventory's lock
//	metrics.go  metrics
//
// # I1: a Pod is never returned for two claims
//
//   - The write tests that the Pod is idle, is not being deleted, and has the same UID; because then one of any number of writers
//     wins, two leaders included; held by TestI1NoPodIsAnsweredTwice, TestI1ADyingPodIsNotHandedOut.
//   - A live read follows a lost write; because a Pod with our sandbox id is ours: the response to an earlier try was lost; held
//     by TestALostAnswerIsFoundAgain.
//   - An unclear write is repeated on the same Pod with the same id, and each try is sent once. From then on the claim is refused
//     only if a test of the write or a live read settles it; because a denial (401, 403, 429) concerns its try alone; held by
//     TestI2AnUnclearWriteIsNotRefused.
//
// # I2: at most one sandbox is returned for a key
//
//   - One claim of a (key, attempt) runs at a time. Callers join it, and it outlives them; held by TestI2OneKeyOneSandbox,
//     TestAKeyedClaimOutlivesItsCaller.
//   - A sandbox is returned only under the lease; because a later leader may have listed the Pods before the write; held by
//     TestI2NoAnswerWithoutTheLease.
//   - A Pod besides the key's holder was never returned, and ends as Canceled; held by TestI2OfTwoPodsTheHigherIncarnationStays.
//     A leader whose lease has lapsed does not end it (I6); held by TestI6ALapsedLeaderEndsNothingOfItsSuccessor.
//   - A sandbox whose write stayed unclear is the result if it has appeared by the next call with the key. If it appears later,
//     it ends; held by TestI2AWriteThatComesLateEndsUnanswered.
//   - Refusals and cancels are kept for ten minutes, up to a maximum number, by the monotonic clock (I10, I11); held by
//     TestRefusalIsRemembered, TestCanceledKey, TestI2OnlyAnUnknownAttemptIsDeclined.
//   - A local claim returns the sandbox that the hub has under its key in this cluster; because clients fall back to the local API;
//     held by TestI2ALocalClaimReturnsTheHubsSandbox.
//
// # What a claim may choose (I14)
//
//   - A claim gets an image of its pool's template, or one that the pool or its Env allows (package allowed). Any other is refused
//     with FORBIDDEN before anything is written, and may be tried in other clusters, whose lists may differ; held by
//     TestI14AClaimGetsOnlyAnImageThatIsAllowed, TestAnEnvsListHoldsAtOnce.
//   - The same holds for the containers of post-start hooks; held by TestI14AHookRunsInTheSandboxsContainerAlone.
//
// # The queue of a pool
//
//   - It has 8192 places unless configured otherwise; held by TestQueueIsBoundedOrderedAndPatient. Nothing polls: the event that
//     makes a Pod idle hands it to the next claim, in O(log n); held by TestNoPodIsIdleWhileAClaimWaits.
//   - Teams take turns, users take turns within their team, and a user's claims keep their order. In a full queue the newest
//     claim of the team with the most makes room for a claim of a team with fewer, and so do the users within a team; because
//     then a flood takes nothing from others, and invented users gain nothing (I14); held by TestTurnsAreFair,
//     TestDisplacingEvensOut. The team comes from credentials; at the local API, from the request.
//   - A claim that lost its Pod to another writer returns to its place and turn, above the bound; because there are at most as
//     many such claims as Pods; held by TestALostPodCostsNoPlace, TestALostIdlePodCostsNoPlace.
//   - A claim that cannot be served fails at once, so that the hub can try another cluster: with NO_CAPACITY if it has noQueue,
//     or if the pool is empty and cannot grow in time; with DEADLINE; with QUEUE_FULL; held by TestAdmit.
//   - A claim without callers leaves the queue, and its Pod goes to the next claim; held by
//     TestAClaimWithoutAKeyEndsWithItsCaller, TestAClaimCanceledAsItGetsItsPodLeavesNone.
//   - A claim without a key whose sandbox ended before it ran, through no fault of the request, returns to its place, for three
//     sandboxes at most; with noQueue it gets a Pod only if one is idle. Its error is that of the last sandbox; held by
//     TestAFailedStartGivesWayToAnotherPod, TestAClaimIsGivenSoManyStarts.
//   - A claim with a key has ended in that case, and the key returns the record, here and at the hub; because another sandbox
//     would be a second one for the key (I2).
//   - A claim without a key that does not run within its startup timeout ends as Failed. Package pool ends one with a key; held
//     by TestAStartThatTakesTooLongFails.
//
// The segment that the hub routes by carries the queue's length. Package pool copies it into the pool's status, for people.
package claim
