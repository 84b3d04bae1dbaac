// SPDX-License-Identifier: Apache-2.0

// Package claims turns a request for a sandbox into one sandbox of one cluster, and remembers it by its claim key.
//
// In go validated requests of a principal.Principal, the fleet's views, and what workers answer; out come sandboxes, decisions and
// typed errors. Decisions (what an answer means, where a claim goes next, what a terminal record or a stray Pod changes)
// are pure functions in decide.go.
//
// # Claims with a key
//
// At most one sandbox is ever answered for a key (I2). The rules, point by point, with the tests that hold them; those of a
// worker are in its package claim:
//
//   - Before the write nothing happened, and a store that fails claims nothing: TestAFailedStoreClaimsNothing.
//   - A durable record (cluster, attempt, request) precedes every dispatch: TestI2RecordIsDurableBeforeTheDispatch. After
//     it, after the dispatch and after the answer a retry asks the same cluster for the same attempt:
//     TestI2HubDiesAfterTheDispatch, TestI2SameKeySameSandbox.
//   - The worker answers from its key index, which a new leader lists live: TestI2ANewLeaderListsBeforeItServes,
//     TestI2NoAnswerWithoutTheLease, TestI2OfTwoPodsTheHigherIncarnationStays.
//   - Retries join the flight that is under way, with the first one's deadline, here and at the worker:
//     TestI2RetriesJoinTheFlight, TestI2JoinersShareTheFirstDeadline, TestAKeyedClaimOutlivesItsCaller.
//   - Only an explicit refusal, the certainty that nothing was ever sent for this attempt, or an operator's forget lets the
//     claim go elsewhere, under the next attempt number and after another durable write: TestI2OnlyARefusalOrNothingSentGoesElsewhere,
//     TestI2ForgettingAClusterIsThePermissionToGoElsewhere. An unclear outcome stays with its cluster: the hub asks again
//     until the deadline, then answers OUTCOME_UNKNOWN: TestI2UnclearStaysWithItsCluster.
//   - A worker remembers refusals and cancels for 10 min: TestRefusalIsRemembered, TestCanceledKey. A dispatch that was not
//     handed to the stream within 1 s is not sent any more (package attach, TestWhatADispatchComesTo), and what was handed
//     over dies with a stream that is silent for 15 s: none is a minute old when it arrives.
//   - A cancel, and the release of a sandbox that has a key, are durable before they are sent. A grant that arrives later is
//     released unanswered, and so is a Pod that a worker reports for a record that ended or moved on:
//     TestI2AGrantAfterTheCancelIsReleased, TestI2ACancelReachesAClusterThatWasAway, TestI2AReleaseIsDurableBeforeItIsSent,
//     TestI2ALaterAttemptMakesTheEarlierPodAStray.
//   - Once a sandbox was answered the record says so (written behind the answer, grouped), and from then on the hub looks
//     the key up and never claims for it again: a worker that has lost its memory cannot make a second sandbox:
//     TestI2AnAnsweredKeyIsNeverClaimedAgain.
//   - Other parameters than the record's conflict, a flight's alone do not: TestI2OtherParametersConflict,
//     TestAFlightThatProvedNothingIsNoConflict.
//   - After the end the key answers the terminal record, which is kept until retention after the end; a record that never
//     ended is dropped only once its cluster has said that it holds nothing for the key: TestI2AfterTheEndTheTerminalRecord,
//     TestSweepKeepsWhatMayBeHeld.
//   - Keys of a worker's local API are a space of their own: hashed with its ClusterID, and in no index that it sends.
//
// # What a cluster's word counts for (I15)
//
// For its own Pods, its own sandbox ids and the dispatches it was sent. A cluster with a valid certificate may lie; so each of
// these is checked where its word enters:
//
//   - A key is adopted from a cluster only while that cluster is being recovered; else a cluster could plant keys and be
//     answered for the claims of others: TestI15AClusterIsNotAnsweredForAKeyThatItPlanted.
//   - A key never moves on a cluster's word where this ledger made the record; because this ledger knows its later attempts.
//     One of a restored ledger does not move to a cluster that its request forbids, nor while the cluster that it was sent to
//     holds it: TestI15AKeyIsNotTakenAway, TestI15ARestoredKeyMovesOnlyWhereItMayHaveGone.
//   - A sandbox id ends in the name that the certificate has, and leads to one key: TestI15ASandboxIDOfAnotherClusterIsNotTaken,
//     TestI15OneSandboxIsNotAdoptedForTwoKeys.
//   - requireClusters is compared again with what was adopted: TestI15RequireClustersHoldsForWhatIsAdopted.
//   - An attempt that no ledger can have made is refused, so that nobody uses up the epochs: TestI15EpochsAreNotUsedUp.
//
// What is refused stays where it is, is logged, is counted (atoll_hub_claim_keys_unsent_total) and shows in the state of its
// cluster. What a cluster says of lost keys while it is being recovered cannot be checked further, and is believed.
//
// # When the ledger is lost, or restored from a backup
//
// Package recovery says when; until it is over every call about a key that is not known is answered RECOVERING, and so is
// every create with a key: TestI2ALostLedgerAnswersNoKeyBeforeAllClustersWereHeard. Key indexes, which then list ended
// sandboxes and claims under way as well, make the ledger whole. bearingOf is the rule:
//
//   - An unknown key is adopted: its Pod may have been answered, so it stays and is what the key answers. The request is not
//     known. The first retry that the sandbox does not contradict (user, Env, labels, metadata) names it, and later ones are
//     compared with that: TestI2AnAdoptedKeyTakesTheParametersOfItsFirstRetry. A claim under way is joined where it is:
//     TestI2AClaimUnderWayIsJoined. An ended sandbox is answered as such: TestI2AKeyWhoseSandboxHadEndedIsNotClaimedAgain.
//   - Of two clusters with one key the later attempt is answered. The earlier one was given up for it, and ends, if both are
//     of one ledger: TestI2OfTwoClustersWithOneKeyTheLaterAttemptStays. If a loss came between them both may have been
//     answered: the other one stays, and is not the key's any more: TestI6APodThatMayHaveBeenAnsweredStays.
//   - A record that is older than a Pod, in a restored ledger, follows it, unless it had its answer or its end already, or its
//     cluster still holds the earlier attempt: TestI2ARestoredLedgerFollowsKeysThatMovedOn.
//
// A cluster whose etcd was set back has lost what was claimed since: those sandboxes are recorded as ended
// (TestSandboxesThatARestoredEtcdLostAreRecordedAsEnded), and what it runs again although it had ended is ended again.
//
// # Decisions that are not the design's
//
// The record keeps the request itself where the design names a hash of its parameters: it is compared field by field, so
// that no encoding has to stay stable, and a claim that nobody waits for (wait NONE) is taken up again after a restart.
// Persisted times are the hub's wall clock and decide retention alone; but for a deadline that a retry meets after a restart,
// which it shortens at most. A claim that nobody waits for has all its time again after a restart, so that no step of the clock
// gives it up (I11): TestI11AnAcceptedClaimOutlivesAStepOfTheClock.
//
// # Sandboxes that have ended
//
// Their records are in the history of their cluster's worker, which answers for them; here are those that had a key, until the
// key expires. A list asks every cluster and merges pages that may end early: TestEndedSandboxesOfAllClustersArePaged. What a
// worker has recorded and not sent when it dies it sends when it is back, so that a key whose answer this hub forgot, and whose
// sandbox has ended since, is not claimed again.
//
// # Claims without a key
//
// They write nothing here. An unclear outcome moves on. A caller that leaves takes its claim along: package attach has the
// worker told, where it gives up its place in the queue. A grant that arrives after its claim moved on or was left is released
// by package attach, one that came as its caller went here, and one whose stream broke under its answer by the worker itself.
// Only a worker that dies between the two leaves a sandbox that nobody was told of; its first-activity timeout ends it.
//
// startupTimeout bounds queueing and starting together. Where the request names none each member has its own default, which its
// segment says, and the hub waits for as long as the longest of those that could serve it, or as the one that holds the claim.
package claims
