// SPDX-License-Identifier: Apache-2.0

// Package claim hands out this cluster's Pods, each by one write to the API server.
//
// In go claims, from the hub and the local API, and the idle Pods of package inventory; out come sandboxes, which package sandboxes
// looks after, or errors that say whether the claim may go elsewhere (package disposition).
//
//	create.go  a claim, from the call to its result
//	start.go   another Pod for a sandbox that ended before it ran
//	keys.go    what is known of a claim key
//	op.go      a claim that is carried out; carry.go: to its end
//	wait.go    a Pod, now or from the queue; queue.go: whose turn it is
//	write.go   the write on the Pod, and its result
//	decide.go  the pure decisions
//
// # I1, a Pod is never returned for two claims
//
//   - The write tests that the Pod is idle, undying and itself; so one of any writers wins, two leaders included:
//     TestI1NoPodIsAnsweredTwice, TestI1ADyingPodIsNotHandedOut.
//   - After a lost write a live read; because a Pod with our sandbox id is ours after all: TestALostAnswerIsFoundAgain.
//   - An unclear write is repeated on the same Pod under the same id, each try sent once, and never refused from then on: a test of
//     the write or a live read settles it; a denial (401, 403, 429) is of its try alone: TestI2AnUnclearWriteIsNotRefused.
//
// # I2, at most one sandbox is returned for a key
//
//   - One claim of a (key, attempt) is carried out at a time. Callers join it, and it outlives them: TestI2OneKeyOneSandbox,
//     TestAKeyedClaimOutlivesItsCaller.
//   - A sandbox is returned only under the lease; because a later leader may have listed before the write:
//     TestI2NoAnswerWithoutTheLease.
//   - A Pod beside the key's holder was never returned, and ends as Canceled: TestI2OfTwoPodsTheHigherIncarnationStays; but not by a
//     leader whose lease has lapsed (I6): TestI6ALapsedLeaderEndsNothingOfItsSuccessor.
//   - An unclear write is the result if it has appeared when its key is asked for again; later it ends:
//     TestI2AWriteThatComesLateEndsUnanswered.
//   - Refusals and cancels are remembered for ten minutes, up to a number, by the monotonic clock (I10, I11):
//     TestRefusalIsRemembered, TestCanceledKey, TestI2OnlyAnUnknownAttemptIsDeclined.
//
// # The queue of a pool
//
//   - It has 8192 places unless configured otherwise. Nothing polls: the event that makes a Pod idle hands it over, in O(log n):
//     TestQueueIsBoundedOrderedAndPatient, TestNoPodIsIdleWhileAClaimWaits.
//   - Teams take turns, users within their team, a user's claims in order. In a full queue the newest claim of the team (within a team:
//     of the user) with most makes room for one with fewer; so a flood takes nothing from others, and invented users gain nothing
//     (I14): TestTurnsAreFair, TestDisplacingEvensOut. Teams are what credentials say; at the local API, what callers say.
//   - A claim that lost its Pod to another writer has its place and turn again, above the bound; because there are no more of these
//     than Pods: TestALostPodCostsNoPlace, TestALostIdlePodCostsNoPlace.
//   - What cannot be served is refused at once, so that the hub can go elsewhere: NO_CAPACITY with noQueue, or from an empty pool
//     that cannot grow in time; DEADLINE; QUEUE_FULL: TestAdmit.
//   - A claim without callers leaves, and its Pod goes to the next: TestAClaimWithoutAKeyEndsWithItsCaller,
//     TestAClaimCanceledAsItGetsItsPodLeavesNone.
//   - A claim without a key whose sandbox ended before it ran, by no fault of the request's, has its place again, for three sandboxes
//     at most; with noQueue, what is idle. Its error is the last one's: TestAFailedStartGivesWayToAnotherPod,
//     TestAClaimIsGivenSoManyStarts. With a key it has ended, and the key returns the record, here and at the hub; because another
//     sandbox would be a second one for the key (I2).
//   - A claim without a key that does not run within its startup timeout ends as Failed; one with a key is package pool's to end:
//     TestAStartThatTakesTooLongFails.
//
// The queue's length is in the segment that the hub routes by; package pool copies it into the pool's status, for people.
package claim
