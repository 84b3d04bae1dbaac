// SPDX-License-Identifier: Apache-2.0

// Package claims turns a request for a sandbox into one sandbox of one cluster, and remembers it by its claim key.
//
// In go validated requests of a Principal, the fleet's views, and workers' responses. Out come sandboxes, decisions and typed
// errors. Pure functions in decide.go decide what a response means, where a claim goes next, and what a Pod or terminal record
// changes. Package ledger stores the records; package sandboxes handles the calls that are not about claims.
//
// # Claims with a key
//
// At most one sandbox is ever returned for a key (I2). The worker's rules are in its package claim.
//
//   - If the store fails, nothing is claimed; because nothing happens before the write: TestAFailedStoreClaimsNothing.
//   - A durable record (cluster, attempt, request) precedes every dispatch; because a retry must ask the same cluster for the
//     same attempt, whatever dies in between: TestI2RecordIsDurableBeforeTheDispatch, TestI2HubDiesAfterTheDispatch,
//     TestI2SameKeySameSandbox.
//   - The worker returns the sandbox in its key index, which a new leader builds from a live list:
//     TestI2ANewLeaderListsBeforeItServes, TestI2NoAnswerWithoutTheLease, TestI2OfTwoPodsTheHigherIncarnationStays.
//   - Retries join the running flight and share its first deadline, on the hub and on the worker: TestI2RetriesJoinTheFlight,
//     TestI2JoinersShareTheFirstDeadline, TestAKeyedClaimOutlivesItsCaller.
//   - A claim moves to another cluster only after a refusal, if certainly nothing was sent for the attempt, or after an operator
//     forgot the cluster; it does so under the next attempt, after another durable write:
//     TestI2OnlyARefusalOrNothingSentGoesElsewhere, TestI2ForgettingAClusterIsThePermissionToGoElsewhere.
//   - A claim with an unclear outcome stays with its cluster; because a Pod may carry it. The hub retries until the deadline,
//     then returns OUTCOME_UNKNOWN: TestI2UnclearStaysWithItsCluster.
//   - A worker remembers refusals and cancels for 10 min, and no dispatch arrives a minute late: a dispatch that was not handed
//     to the stream within 1 s is not sent, and the others die with a stream that is silent for 15 s: TestRefusalIsRemembered,
//     TestCanceledKey, and in package attach TestWhatADispatchComesTo.
//   - A cancel, and the release of a sandbox with a key, are durable before they are sent; because a grant may arrive later. That
//     grant is released, and so is a Pod whose record ended or moved on: TestI2AGrantAfterTheCancelIsReleased,
//     TestI2ACancelReachesAClusterThatWasAway, TestI2AReleaseIsDurableBeforeItIsSent,
//     TestI2ALaterAttemptMakesTheEarlierPodAStray.
//   - Once a sandbox was returned the record says so, and the hub only looks the key up and never claims for it again; because a
//     worker that lost its memory would create a second sandbox: TestI2AnAnsweredKeyIsNeverClaimedAgain.
//   - Parameters that differ from the record's conflict; those that differ from a flight's only do not:
//     TestI2OtherParametersConflict, TestAFlightThatProvedNothingIsNoConflict.
//   - After the end the key returns the terminal record, until retention is over. A record that never ended is dropped only
//     once its cluster holds nothing for the key: TestI2AfterTheEndTheTerminalRecord, TestSweepKeepsWhatMayBeHeld.
//   - A refused claim keeps the names and a digest of its request for 15 min; because requests would fill the store, and a worker
//     remembers the refusal for 10 min: TestI14ARefusedClaimKeepsNoRequest.
//   - A team has a quota of keys and bytes; above it a claim fails with RATE_LIMITED (I14). A restricted caller without a team
//     has a quota of its own, an unrestricted caller has none: TestI14ATeamKeepsNoMoreKeysThanItsQuota,
//     TestI14ACallerWithoutATeamIsChargedItself.
//   - Keys of a worker's local API are a space of their own: hashed with its ClusterID, and in no index that it sends.
//
// # When the ledger is lost, or restored from a backup
//
// Package recovery decides when that is so. Key indexes then list ended sandboxes and running claims as well, and make the ledger
// complete (bearingOf).
//
//   - Until then a call about an unknown key, and every create with a key, fails with RECOVERING:
//     TestI2ALostLedgerAnswersNoKeyBeforeAllClustersWereHeard.
//   - An unknown key is adopted; because its Pod may have been returned. The first retry that the sandbox does not contradict
//     (user, Env, labels, metadata, requireClusters) sets the request: TestI2AnAdoptedKeyTakesTheParametersOfItsFirstRetry.
//   - A retry joins a running claim on its cluster, and an ended sandbox is returned as ended: TestI2AClaimUnderWayIsJoined,
//     TestI2AKeyWhoseSandboxHadEndedIsNotClaimedAgain.
//   - If two clusters have one key, the later attempt is returned. If one ledger created both, the earlier was abandoned for it
//     and ends: TestI2OfTwoClustersWithOneKeyTheLaterAttemptStays. If a loss lies between them the earlier one stays; because it
//     may have been returned (I6): TestI6APodThatMayHaveBeenAnsweredStays.
//   - A restored record follows its key to a later attempt, unless it was returned or ended, or its cluster still holds the
//     earlier one: TestI2ARestoredLedgerFollowsKeysThatMovedOn.
//   - Sandboxes that a cluster lost because its etcd was restored are recorded as ended:
//     TestSandboxesThatARestoredEtcdLostAreRecordedAsEnded.
//
// # What a cluster's report counts for (I15)
//
// Only for its own Pods, its own sandbox ids and the dispatches it was sent; because a cluster with a valid certificate may lie.
//
//   - A key is adopted from a cluster only while that cluster is being recovered; because it could plant keys and have its
//     sandboxes returned for others' claims: TestI15AClusterIsNotAnsweredForAKeyThatItPlanted.
//   - A report does not move a key whose record this ledger created; because the ledger has the later attempts. A restored key
//     does not move to a cluster that its request forbids, nor away from one that holds it: TestI15AKeyIsNotTakenAway,
//     TestI15ARestoredKeyMovesOnlyWhereItMayHaveGone.
//   - A sandbox id ends in the name in the certificate, and maps to one key: TestI15ASandboxIDOfAnotherClusterIsNotTaken,
//     TestI15OneSandboxIsNotAdoptedForTwoKeys.
//   - requireClusters is checked again against what was adopted: TestI15RequireClustersHoldsForWhatIsAdopted.
//   - An attempt that no ledger can have created is refused; because it would use up the epochs: TestI15EpochsAreNotUsedUp.
//   - What is refused stays on its cluster, is logged, counted (atoll_hub_claim_keys_unsent_total), shown in its cluster's state,
//     and never stored: TestEndedRecordsOfOthers.
//
// What a cluster reports about lost keys while it is being recovered cannot be checked further. It is believed.
//
// # What differs from the design
//
//   - The record has the request, not a hash of its parameters; because comparing fields needs no stable encoding, and a claim
//     without a waiting caller (wait NONE) is resumed after a restart.
//   - Stored times are the hub's wall clock. They decide retention, and shorten the deadline of a retry after a restart. A claim
//     without a waiting caller has all its time again (I11): TestI11AnAcceptedClaimOutlivesAStepOfTheClock.
//   - Terminal records are in the history of the worker. Those of keys are here as well, until the key expires; because a key
//     whose sandbox has ended must not be claimed again.
//
// # Claims without a key
//
//   - They write nothing, and move on after an unclear outcome: TestClaimsWithoutAKeyWriteNothing,
//     TestWithoutAKeyAnUnclearOutcomeMovesOn.
//   - A claim ends with its caller: TestACallerThatLeavesTakesItsClaimAlong. A grant that arrives later is released by package
//     attach; a grant that arrives as the caller leaves, here (TestAGrantWhoseCallerHasGoneIsReleased); a grant whose stream
//     broke under its response, by the worker. If the worker dies in between, the first-activity timeout ends the sandbox.
//   - startupTimeout bounds queueing and starting together. Where the request has none it is the longest of the members that
//     could serve it, or that of the member that holds the claim: TestMembersSayHowLongClaimsMayTake.
package claims
