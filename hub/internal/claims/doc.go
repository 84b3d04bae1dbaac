// SPDX-License-Identifier: Apache-2.0

// Package claims turns a request for a sandbox into one sandbox of one cluster, and remembers it by its claim key.
//
// In: validated requests of a Principal, the fleet's views, workers' responses. Out: sandboxes, decisions, typed errors. decide.go
// is pure. Package ledger stores the records; package sandboxes has the calls that are not about claims.
//
// # Claims with a key
//
// At most one sandbox is ever returned for a key (I2). Package claim of the worker has its part.
//
//   - A store that fails claims nothing: TestAFailedStoreClaimsNothing.
//   - A durable record (cluster, attempt, request) precedes every dispatch; because a retry must ask the same cluster for the
//     same attempt: TestI2RecordIsDurableBeforeTheDispatch, TestI2HubDiesAfterTheDispatch, TestI2SameKeySameSandbox.
//   - The worker answers from its key index, which a new leader builds from a live list: TestI2ANewLeaderListsBeforeItServes,
//     TestI2NoAnswerWithoutTheLease, TestI2OfTwoPodsTheHigherIncarnationStays.
//   - Retries join the running flight and share its first deadline: TestI2RetriesJoinTheFlight,
//     TestI2JoinersShareTheFirstDeadline, TestAKeyedClaimOutlivesItsCaller.
//   - A claim moves to another cluster only after a refusal, if certainly nothing was sent, or after an operator forgot the
//     cluster; under the next attempt, after another durable write: TestI2OnlyARefusalOrNothingSentGoesElsewhere,
//     TestI2ForgettingAClusterIsThePermissionToGoElsewhere.
//   - A claim with an unclear outcome stays with its cluster; because a Pod may carry it. After the deadline it is
//     OUTCOME_UNKNOWN: TestI2UnclearStaysWithItsCluster.
//   - A worker remembers refusals and cancels for 10 min, and no dispatch arrives a minute late: one that was not on the stream
//     within 1 s is not sent, others die with a stream that is silent for 15 s: TestRefusalIsRemembered, TestCanceledKey, and in
//     package attach TestWhatADispatchComesTo.
//   - A cancel, and a release under a key, are durable before they are sent; because a grant may arrive later. It is released, as
//     is a Pod whose record ended or moved on: TestI2AGrantAfterTheCancelIsReleased,
//     TestI2ACancelReachesAClusterThatWasAway, TestI2AReleaseIsDurableBeforeItIsSent,
//     TestI2ALaterAttemptMakesTheEarlierPodAStray.
//   - Once a sandbox was returned, the key is looked up and never claimed again; because a worker that lost its memory would
//     create a second sandbox: TestI2AnAnsweredKeyIsNeverClaimedAgain.
//   - Parameters that differ from the record's conflict; those that differ from a flight's only do not:
//     TestI2OtherParametersConflict, TestAFlightThatProvedNothingIsNoConflict.
//   - After the end the key returns the terminal record until retention is over. A record without an end is dropped only once
//     its cluster holds nothing for the key: TestI2AfterTheEndTheTerminalRecord, TestSweepKeepsWhatMayBeHeld.
//   - A refused claim keeps names and a digest of its request, for 15 min; because requests would fill the store:
//     TestI14ARefusedClaimKeepsNoRequest.
//   - A team has a quota of keys and bytes, and a restricted caller without a team one of its own; beyond it a claim is
//     RATE_LIMITED: TestI14ATeamKeepsNoMoreKeysThanItsQuota, TestI14ACallerWithoutATeamIsChargedItself.
//   - Keys of a worker's local API are a space of their own: hashed with its ClusterID, and in no index that it sends.
//
// # A ledger that was lost, or restored from a backup
//
// Package recovery detects it. Key indexes then list ended sandboxes and running claims as well, and complete the ledger
// (bearingOf).
//
//   - Until then calls about unknown keys, and all creates with a key, are RECOVERING:
//     TestI2ALostLedgerAnswersNoKeyBeforeAllClustersWereHeard.
//   - An unknown key is adopted; because its Pod may have been returned. The first retry that the sandbox does not contradict
//     (user, Env, labels, metadata, requireClusters) sets the request: TestI2AnAdoptedKeyTakesTheParametersOfItsFirstRetry.
//   - A retry joins a running claim on its cluster; an ended sandbox is returned as ended: TestI2AClaimUnderWayIsJoined,
//     TestI2AKeyWhoseSandboxHadEndedIsNotClaimedAgain.
//   - Of two clusters with one key the later attempt is returned. The earlier ends if one ledger created both, and stays if a loss
//     lies between; because it may have been returned (I6): TestI2OfTwoClustersWithOneKeyTheLaterAttemptStays,
//     TestI6APodThatMayHaveBeenAnsweredStays.
//   - A restored record follows its key to a later attempt, unless it was returned or ended, or its cluster holds the earlier one:
//     TestI2ARestoredLedgerFollowsKeysThatMovedOn.
//   - Sandboxes that a restored etcd lost are recorded as ended: TestSandboxesThatARestoredEtcdLostAreRecordedAsEnded.
//
// # What a report counts for (I15)
//
// Its cluster's own Pods, sandbox ids and dispatches, and nothing else; because a cluster with a valid certificate may lie.
//
//   - A key is adopted only from a cluster that is being recovered; because it could plant keys for others' claims:
//     TestI15AClusterIsNotAnsweredForAKeyThatItPlanted.
//   - A report does not move a key that this ledger created. A restored key moves neither to a cluster that its request forbids nor
//     away from one that holds it: TestI15AKeyIsNotTakenAway, TestI15ARestoredKeyMovesOnlyWhereItMayHaveGone.
//   - A sandbox id ends in the name in the certificate, and belongs to one key: TestI15ASandboxIDOfAnotherClusterIsNotTaken,
//     TestI15OneSandboxIsNotAdoptedForTwoKeys.
//   - requireClusters holds for what is adopted: TestI15RequireClustersHoldsForWhatIsAdopted.
//   - An attempt that no ledger can have created is refused; because it would use up the epochs: TestI15EpochsAreNotUsedUp.
//   - What is refused is logged, counted (atoll_hub_claim_keys_unsent_total), shown in its cluster's state, and never stored:
//     TestEndedRecordsOfOthers.
//
// What a cluster says of lost keys while it is being recovered is believed; because nothing can confirm it.
//
// # What differs from the design
//
//   - The record has the request and no hash; because comparing fields needs no stable encoding, and a claim without a waiting
//     caller is resumed after a restart.
//   - Stored times are the hub's wall clock. They decide retention and shorten a retry's deadline after a restart; a claim without
//     a waiting caller has all its time again (I11): TestI11AnAcceptedClaimOutlivesAStepOfTheClock.
//   - Terminal records of keys are here until the key expires, beside the worker's history; because the key must not be claimed
//     again.
//
// # Claims without a key
//
//   - They write nothing, and move on after an unclear outcome: TestClaimsWithoutAKeyWriteNothing,
//     TestWithoutAKeyAnUnclearOutcomeMovesOn.
//   - A claim ends with its caller: TestACallerThatLeavesTakesItsClaimAlong. A grant that arrives later is released by package
//     attach, one that arrives as the caller leaves here (TestAGrantWhoseCallerHasGoneIsReleased), one whose stream broke by the
//     worker, and if that dies by the first-activity timeout.
//   - startupTimeout bounds queueing and starting. Without one it is the longest of the members that could serve, or that of the
//     member that holds the claim: TestMembersSayHowLongClaimsMayTake.
package claims
