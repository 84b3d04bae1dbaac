// SPDX-License-Identifier: Apache-2.0

// Package claim assigns this cluster's Pods to claims, each by one write to the API server.
//
// In: claims from the hub and the local API, and package inventory's idle Pods. Out: sandboxes, or errors that say whether another cluster
// may be tried (package disposition). It keeps I1, I2 and I14.
//
//	create.go   a claim, from call to result
//	start.go    failed starts
//	keys.go     what exists for a claim key
//	enforce.go  sandboxes that must not exist
//	op.go       a claim under way
//	carry.go    runs a claim to its end
//	secrets.go  references to Secrets
//	wait.go     gets a Pod, now or later
//	queue.go    which claim is next
//	writes.go   limits concurrent writes of claims
//	write.go
//	decide.go   (pure)
//	service.go
//	locked.go   state under the inventory's lock
//	metrics.go
//
// # I1: a Pod is never returned for two claims
//
//   - The write tests that the Pod is idle, not being deleted, and has the same UID; because one writer must win:
//     TestI1NoPodIsReturnedTwice, TestI1ADyingPodIsNotHandedOut.
//   - A live read follows a lost write; because a Pod with our sandbox id is ours: TestALostResponseIsFoundAgain.
//   - An unclear write is repeated on the same Pod with the same id until a test or a live read settles it; because a denial (401, 403,
//     429) concerns its try alone: TestI2AnUnclearWriteIsNotRefused.
//
// # How many claims are written at a time
//
//   - At most 256 in a namespace and 320 altogether; because in a large burst each would take longer than its timeout, and because the
//     writes of one namespace may hang alone: TestSoManyClaimsAreWrittenAtATime, TestWritesOfOneNamespaceLeaveSlots.
//   - The team with the fewest goes first, and a team's claims go in order (I14): TestTheTeamWithTheFewestWritesGoesFirst,
//     TestWritesKeepTheirOrder.
//   - A claim stops waiting for a slot when its caller leaves, at its deadline, or when the API server has confirmed no claim of its
//     namespace for 7 s; because other clusters may be tried. Its Pod is idle again: TestAClaimThatIsNotWrittenLeavesItsPod,
//     TestAnAPIServerThatHangsHoldsUpNoClaimTwice.
//   - The wait for a lease that has lapsed takes no slot: TestAWaitForTheLeaseTakesNoSlot.
//
// # I2: at most one sandbox is returned for a key
//
//   - One claim of a (key, attempt) runs at a time; callers join it, and it outlives them: TestI2OneKeyOneSandbox,
//     TestAKeyedClaimOutlivesItsCaller.
//   - A sandbox is returned only under the lease; because a later leader may have listed the Pods before the write:
//     TestI2NoResponseWithoutTheLease.
//   - A claim waits for a lease that has lapsed; because a burst delays the renewal, and a renewal shows that no other process has led
//     (package lease): TestI2ALeaseThatIsRenewedLateCostsNoClaim.
//   - Of the Pods with one key, only the holder was ever returned. The others end as Canceled, under the lease only (I6):
//     TestI2OfTwoPodsTheHigherIncarnationStays, TestI6ALapsedLeaderEndsNothingOfItsSuccessor.
//   - A late write of an earlier leader ends in the same way if its key stands for a sandbox that has ended or for a claim under way;
//     because no caller has received it: TestI2AWriteThatComesAfterTheEndOfItsKeyEnds, TestI2ALateWriteMakesWayForTheClaimThatWaits.
//   - The sandbox of an unclear write ends if it appears only after the key's next call, or while a claim of the key waits that is then
//     refused: TestI2AWriteThatComesLateEndsUnanswered, TestI2AWriteThatComesLateEndsWithTheRefusal. Without a key it ends in any case:
//     TestAnUnclearWriteThatWasSeenLeavesNoSandbox.
//   - Sandboxes that appear while the lease has lapsed are checked when it is held again: TestI2WhatAppearedWithoutTheLeaseIsLookedAtAgain.
//   - Refusals and cancels are kept for ten minutes, bounded in number (I10, I11): TestRefusalIsRemembered, TestCanceledKey,
//     TestI2OnlyAnUnknownAttemptIsDeclined.
//   - A local claim returns the hub's sandbox for its key; because clients fall back to the local API:
//     TestI2ALocalClaimReturnsTheHubsSandbox.
//
// # I14: what a claim may choose
//
//   - An image that package allowed refuses is FORBIDDEN before any write; other clusters, with other lists, may be tried:
//     TestI14AClaimGetsOnlyAnImageThatIsAllowed, TestAnEnvsListHoldsAtOnce.
//   - So is a post-start hook's container: TestI14AHookRunsInTheSandboxsContainerAlone.
//   - A Secret that package secretenv does not allow, or that is missing, is MISCONFIGURED before a Pod is taken; other clusters may be
//     tried: TestSecretsAreRefusedBeforeAPodIsTaken.
//
// # The queue of a pool
//
//   - It has 8192 places by default: TestQueueIsBoundedOrderedAndPatient. An idle Pod's event serves the next claim:
//     TestNoPodIsIdleWhileAClaimWaits.
//   - Teams take turns, then users within a team, then claims in order. In a full queue, the newest claim of the team, then user, with the
//     most claims makes room for a claim of one with fewer; because floods and invented users must gain nothing (I14): TestTurnsAreFair,
//     TestDisplacingEvensOut. The local API takes the team from the request.
//   - A claim that lost its Pod returns to its place, even above the bound; because Pods bound the number of such claims:
//     TestALostPodCostsNoPlace, TestALostIdlePodCostsNoPlace.
//   - Unservable claims fail immediately; because the hub can try another cluster. The reasons are NO_CAPACITY with noQueue or in an empty
//     pool that cannot grow in time, DEADLINE, and QUEUE_FULL: TestAdmit.
//   - A claim that the hub sent for an idle Pod alone does not wait either: NO_CAPACITY; because the hub knows other clusters with idle
//     Pods, and another claim took this one's: TestAnIdleOnlyClaimDoesNotWait.
//   - A call of the hub counts as claiming from when its claim has a Pod until it returns; because the hub deducts it meanwhile, and would
//     deduct the Pod as well: TestCallsOfTheHubWithAPodAreClaiming.
//   - A claim without callers leaves the queue, and its Pod goes to the next: TestAClaimWithoutAKeyEndsWithItsCaller,
//     TestAClaimCanceledAsItGetsItsPodLeavesNone.
//   - A claim without a key returns to its place if its sandbox ended before it ran, through no fault of the request, for at most three
//     sandboxes. With noQueue it needs an idle Pod: TestAFailedStartGivesWayToAnotherPod, TestAClaimIsGivenSoManyStarts. A claim with a key
//     has ended then, and later calls with the key return the sandbox's record (I2).
//   - A claim without a key fails after its startup timeout: TestAStartThatTakesTooLongFails.
package claim
