// SPDX-License-Identifier: Apache-2.0

// Package claims turns a request for a sandbox into one sandbox of one cluster, and remembers it by its claim key.
//
// In go validated requests of a Principal, the fleet's views, and what workers say; out come sandboxes, decisions and typed
// errors. What an answer means, where a claim goes next and what a Pod or terminal record changes are pure functions in
// decide.go. Package ledger stores the records; package sandboxes passes on the calls that are not about claims.
//
// # Claims with a key
//
// At most one sandbox is ever returned for a key (I2). The worker's rules are in its package claim.
//
//   - A store that fails claims nothing; because nothing happened before the write: TestAFailedStoreClaimsNothing.
//   - A durable record (cluster, attempt, request) precedes every dispatch; because a retry must ask the same cluster for the
//     same attempt, whatever dies in between: TestI2RecordIsDurableBeforeTheDispatch, TestI2HubDiesAfterTheDispatch,
//     TestI2SameKeySameSandbox.
//   - The worker returns what its key index has, which a new leader lists live: TestI2ANewLeaderListsBeforeItServes,
//     TestI2NoAnswerWithoutTheLease, TestI2OfTwoPodsTheHigherIncarnationStays.
//   - Retries join the flight under way, with the first one's deadline, here and at the worker: TestI2RetriesJoinTheFlight,
//     TestI2JoinersShareTheFirstDeadline, TestAKeyedClaimOutlivesItsCaller.
//   - A claim goes elsewhere only after a refusal, if certainly nothing was sent for the attempt, or after an operator forgot
//     the cluster; under the next attempt, after another durable write: TestI2OnlyARefusalOrNothingSentGoesElsewhere,
//     TestI2ForgettingAClusterIsThePermissionToGoElsewhere.
//   - An unclear outcome stays with its cluster; because a Pod may carry the claim. The hub asks again until the deadline, then
//     returns OUTCOME_UNKNOWN: TestI2UnclearStaysWithItsCluster.
//   - A worker remembers refusals and cancels for 10 min, and no dispatch is a minute old when it arrives: one that was not
//     handed to the stream within 1 s is not sent, and the rest die with a stream that is silent for 15 s:
//     TestRefusalIsRemembered, TestCanceledKey, and in package attach TestWhatADispatchComesTo.
//   - A cancel, and the release of a sandbox with a key, are durable before they are sent; because a grant may arrive later. It
//     is released, and so is a Pod of a record that ended or moved on: TestI2AGrantAfterTheCancelIsReleased,
//     TestI2ACancelReachesAClusterThatWasAway, TestI2AReleaseIsDurableBeforeItIsSent,
//     TestI2ALaterAttemptMakesTheEarlierPodAStray.
//   - Once a sandbox was returned the record says so, and the hub looks the key up and never claims for it again; because a
//     worker that lost its memory would make a second sandbox: TestI2AnAnsweredKeyIsNeverClaimedAgain.
//   - Other parameters than the record's conflict, those of a flight alone do not: TestI2OtherParametersConflict,
//     TestAFlightThatProvedNothingIsNoConflict.
//   - After the end the key returns the terminal record, until retention is over. A record that never ended is dropped only
//     once its cluster holds nothing for the key: TestI2AfterTheEndTheTerminalRecord, TestSweepKeepsWhatMayBeHeld.
//   - A refused claim keeps the names and a digest of its request for 15 min; because requests would fill the store, and a worker
//     remembers the refusal for 10 min: TestI14ARefusedClaimKeepsNoRequest.
//   - A team keeps at most so many keys and bytes, then gets RATE_LIMITED (I14). A restricted caller without a team is charged
//     itself, an unrestricted one not at all: TestI14ATeamKeepsNoMoreKeysThanItsQuota, TestI14ACallerWithoutATeamIsChargedItself.
//   - Keys of a worker's local API are a space of their own: hashed with its ClusterID, and in no index that it sends.
//
// # When the ledger is lost, or restored from a backup
//
// Package recovery says when. Key indexes, which then list ended sandboxes and claims under way as well, make the ledger whole
// (bearingOf).
//
//   - Until then a call about an unknown key, and every create with a key, gets RECOVERING:
//     TestI2ALostLedgerAnswersNoKeyBeforeAllClustersWereHeard.
//   - An unknown key is adopted; because its Pod may have been returned. The first retry that the sandbox does not contradict
//     (user, Env, labels, metadata, requireClusters) names the request: TestI2AnAdoptedKeyTakesTheParametersOfItsFirstRetry.
//   - A claim under way is joined where it is, and an ended sandbox is returned as ended: TestI2AClaimUnderWayIsJoined,
//     TestI2AKeyWhoseSandboxHadEndedIsNotClaimedAgain.
//   - Of two clusters with one key the later attempt is returned. The earlier one was given up for it and ends, if one ledger
//     made both: TestI2OfTwoClustersWithOneKeyTheLaterAttemptStays. If a loss came between them it stays; because it may have
//     been returned (I6): TestI6APodThatMayHaveBeenAnsweredStays.
//   - A restored record follows its key to a later attempt, unless it was returned or ended, or its cluster still holds the
//     earlier one: TestI2ARestoredLedgerFollowsKeysThatMovedOn.
//   - What a cluster lost whose etcd was set back is recorded as ended: TestSandboxesThatARestoredEtcdLostAreRecordedAsEnded.
//
// # What a cluster's word counts for (I15)
//
// For its own Pods, its own sandbox ids and the dispatches it was sent; because a cluster with a valid certificate may lie.
//
//   - A key is adopted from a cluster only while that cluster is being recovered; because it could plant keys and be returned
//     for the claims of others: TestI15AClusterIsNotAnsweredForAKeyThatItPlanted.
//   - A key does not move on a cluster's word where this ledger made the record; because it knows the later attempts. A restored
//     one does not move to a cluster that its request forbids, nor away from one that holds it: TestI15AKeyIsNotTakenAway,
//     TestI15ARestoredKeyMovesOnlyWhereItMayHaveGone.
//   - A sandbox id ends in the name that the certificate has, and leads to one key: TestI15ASandboxIDOfAnotherClusterIsNotTaken,
//     TestI15OneSandboxIsNotAdoptedForTwoKeys.
//   - requireClusters is compared again with what was adopted: TestI15RequireClustersHoldsForWhatIsAdopted.
//   - An attempt that no ledger can have made is refused; because it would use up the epochs: TestI15EpochsAreNotUsedUp.
//   - What is refused stays where it is, is logged, counted (atoll_hub_claim_keys_unsent_total), shown in its cluster's state,
//     and never stored: TestEndedRecordsOfOthers.
//
// What a cluster says of lost keys while it is being recovered cannot be checked further. It is believed.
//
// # What differs from the design
//
//   - The record has the request, not a hash of its parameters; because fields are compared, so that no encoding has to stay
//     stable, and a claim without a waiting caller (wait NONE) is taken up again after a restart.
//   - Stored times are the hub's wall clock. They decide retention, and shorten the deadline of a retry after a restart. A claim
//     without a waiting caller has all its time again (I11): TestI11AnAcceptedClaimOutlivesAStepOfTheClock.
//   - Terminal records are in the history of the worker. Those of keys are here as well, until the key expires; because a key
//     whose sandbox has ended must not be claimed again.
//
// # Claims without a key
//
//   - They write nothing, and an unclear outcome moves on: TestClaimsWithoutAKeyWriteNothing,
//     TestWithoutAKeyAnUnclearOutcomeMovesOn.
//   - A caller that leaves takes its claim along: TestACallerThatLeavesTakesItsClaimAlong. A grant that arrives later is released
//     by package attach, one that comes as the caller leaves here (TestAGrantWhoseCallerHasGoneIsReleased), one whose stream
//     broke under its answer by the worker. If the worker dies in between, the first-activity timeout ends the sandbox.
//   - startupTimeout bounds queueing and starting together. Where the request names none it is the longest of the members that
//     could serve it, or that of the member that holds the claim: TestMembersSayHowLongClaimsMayTake.
package claims
