// SPDX-License-Identifier: Apache-2.0

// Package claims turns a request into one sandbox of one cluster, and remembers it by its claim key.
//
// In: a Principal's requests, Views, workers' responses. Out: sandboxes or typed errors. decide.go is pure.
//
// # With a key: at most one sandbox is ever returned for it (I2)
//
//   - A failed store claims nothing: TestAFailedStoreClaimsNothing.
//   - A durable record (cluster, attempt, request) precedes every dispatch; because a retry must repeat it:
//     TestI2RecordIsDurableBeforeTheDispatch, TestI2HubDiesAfterTheDispatch, TestI2SameKeySameSandbox.
//   - The worker's part is in its package claim: TestI2ANewLeaderListsBeforeItServes, TestI2NoAnswerWithoutTheLease,
//     TestI2OfTwoPodsTheHigherIncarnationStays.
//   - Retries join the running flight and its first deadline: TestI2RetriesJoinTheFlight, TestI2JoinersShareTheFirstDeadline,
//     TestAKeyedClaimOutlivesItsCaller.
//   - A claim moves to another cluster only if it was refused or certainly not sent, or its cluster was forgotten; as the next attempt,
//     after another write: TestI2OnlyARefusalOrNothingSentGoesElsewhere, TestI2ForgettingAClusterIsThePermissionToGoElsewhere.
//   - An unclear claim stays; because a Pod may carry it. After the deadline it is OUTCOME_UNKNOWN: TestI2UnclearStaysWithItsCluster.
//   - Workers remember refusals and cancels for 10 min; no dispatch travels that long: TestRefusalIsRemembered, TestCanceledKey,
//     TestWhatADispatchComesTo of package attach.
//   - Cancels, and releases under a key, are durable before they are sent; because a grant may follow. It is released, as is a Pod whose
//     record ended or moved on: TestI2AGrantAfterTheCancelIsReleased, TestI2ACancelReachesAClusterThatWasAway,
//     TestI2AReleaseIsDurableBeforeItIsSent, TestI2ALaterAttemptMakesTheEarlierPodAStray.
//   - So is a Pod whose attempt was refused, which a write from before the refusal made: TestI2ASandboxThatAppearsAfterItsRefusalEnds.
//   - A key that returned a sandbox is never claimed again; because a worker without memory creates a second:
//     TestI2AnAnsweredKeyIsNeverClaimedAgain.
//   - Parameters that differ from the record's conflict; from a flight's only, they do not: TestI2OtherParametersConflict,
//     TestAFlightThatProvedNothingIsNoConflict.
//   - An ended key returns its terminal record until retention is over. A record without an end stays until its cluster holds nothing for
//     the key: TestI2AfterTheEndTheTerminalRecord, TestSweepKeepsWhatMayBeHeld.
//   - A call with wait NONE gets the claim as it was recorded, and the error of a flight that recorded nothing; because an empty sandbox
//     would look like success: TestWaitNoneIsAnsweredWhenDurable, TestWaitNoneGetsTheErrorOfAFlightWithoutARecord.
//   - A refused claim keeps names and a digest for 15 min: TestI14ARefusedClaimKeepsNoRequest.
//   - Keys and bytes have a quota, of a team or of a restricted caller without one; then RATE_LIMITED:
//     TestI14ATeamKeepsNoMoreKeysThanItsQuota, TestI14ACallerWithoutATeamIsChargedItself.
//   - Keys of a worker's local API are hashed with its ClusterID and in no index that it sends.
//
// # Several replicas of the hub
//
// They share a store, and each may serve any key. Replicas asked for one key at once meet at the record, by compare-and-swap, and at the
// worker, which joins calls of one attempt. With one replica no write is added: TestOneReplicaWritesNoMore.
//
//   - A conflict is no error: the flight goes on by the record that it finds: TestI2TwoReplicasAskedAtOnceReturnOneSandbox.
//   - A replica marks an attempt that it did not write as joined before it sends it; because the writer's "not sent" then says nothing, and
//     its write of the next attempt must meet a conflict: TestI2NotSentMovesNoClaimThatAnotherReplicaJoined.
//   - A sandbox is recorded before it is returned; because the next call may reach another replica, and a grant that comes late must find
//     what the key has: TestI2ASandboxIsRecordedBeforeItIsReturned, TestI2AFrozenReplicaReturnsNoSecondSandbox,
//     TestI2WithoutItsRecordASandboxIsNotReturned.
//   - A sandbox whose key has ended meanwhile, or has another, ends unreturned: TestI2ACancelAtAnotherReplicaEndsTheClaim.
//   - A claim that waits for its cluster reads its record; because another replica may have ended it:
//     TestACancelAtAnotherReplicaEndsAClaimThatWaitsForItsCluster.
//   - A flight takes no further callers before it reads the state that it returns; because a release or cancel at another replica may have
//     returned before their call: TestACallIsNotAnsweredFromBeforeIt.
//   - Whatever a replica did before it died, another one returns the same sandbox: TestI2AReplicaDies.
//   - One replica resumes the claims without a waiting caller of replicas that have gone, and sweeps. Hints say who has gone; a wrong one
//     only delays: TestOpenClaimsOfADeadReplicaAreResumedOnce, TestAResumedClaimIsItsNewReplicas,
//     TestAReplicaThatRestartsResumesItsOpenClaims, TestOneReplicaSweeps.
//   - A store that does not respond costs a claim with a key 3 s, and the next ones nothing, before it is UNAVAILABLE. Other calls go on:
//     TestWithoutTheStoreOnlyClaimsWithAKeyAreRefused.
//   - Each replica counts its own writes against a team's quota, and all records every 5 min. In between a team may exceed its quota by at
//     most one quota for each further replica.
//
// # The last idle Pod
//
// A claim that is routed to an idle Pod says so, while other candidates are left. A worker without an idle Pod then refuses it, and it goes
// on; because another replica, or a local caller, has taken the Pod, and a hop is shorter than a wait. Where no candidate has an idle
// Pod, or two had none, it may wait: TestAClaimWhoseIdlePodIsTakenGoesOnBeforeItWaits, TestOnlyACandidateWithoutAnIdlePodIsAskedAgain.
// So may a claim that another replica or process chose the cluster for: TestAClaimOfADeadReplicaWaitsForNoPodWhileOthersAreIdle.
//
// # A Pod that becomes idle elsewhere
//
// A claim that may wait looks every second whether another candidate has had an idle Pod for that long. It reserves the Pod, so that one
// Pod moves one claim, and asks the worker to refuse the claim if it still waits (Withdraw). Only that refusal moves a claim with a key; a
// claim without one leaves as if its caller had: TestAWaitingClaimGoesWhereAPodIsIdle, TestI2AClaimThatWasGrantedIsNotMoved,
// TestOneIdlePodMovesOneClaim, TestWhatKeepsAWaitingClaim; of the worker TestI2OnlyAWaitingClaimIsWithdrawn. Which of the claims that
// wait goes is chance; because their turns are known to the worker alone.
//
// # A ledger that was lost, or restored from a backup
//
// Package recovery detects it. Clusters' key indexes, with ended sandboxes and running claims, complete it (bearingOf). They are believed;
// because nothing can confirm them.
//
//   - Before that, calls about unknown keys, and creates with a key, are RECOVERING:
//     TestI2ALostLedgerAnswersNoKeyBeforeAllClustersWereHeard.
//   - An unknown key is adopted; because its Pod may have been returned. The first retry that the sandbox does not contradict sets the
//     request (user, Env, labels, metadata, requireClusters): TestI2AnAdoptedKeyTakesTheParametersOfItsFirstRetry.
//   - A retry joins a running claim, and returns an ended sandbox as ended: TestI2AClaimUnderWayIsJoined,
//     TestI2AKeyWhoseSandboxHadEndedIsNotClaimedAgain.
//   - Of two clusters with one key the later attempt is returned. The earlier ends, unless a ledger was lost between (I6):
//     TestI2OfTwoClustersWithOneKeyTheLaterAttemptStays, TestI6APodThatMayHaveBeenAnsweredStays.
//   - Once a loss was accepted, a key goes to no cluster that was not heard, however many there are; because that one may hold it:
//     TestI2NoUnheardClusterIsAskedHoweverManyThereAre.
//   - A restored record follows its key to a later attempt, unless it was returned or ended, or its cluster holds the earlier:
//     TestI2ARestoredLedgerFollowsKeysThatMovedOn.
//   - Sandboxes that a restored etcd lost have ended: TestSandboxesThatARestoredEtcdLostAreRecordedAsEnded.
//   - A damaged record is left out of both; because it says nothing about others. Its key is neither returned nor claimed:
//     TestADamagedRecordKeepsNoClusterUnheard, TestADamagedRecordHidesNoLostSandbox.
//   - It delays no ends that a cluster sends with its own; because a worker sends none after a batch that is not acknowledged:
//     TestADamagedRecordDelaysNoEndsOfOthers. Nor does a record that must wait for another cluster:
//     TestAClusterThatIsAwayDelaysNoEndsOfAnother.
//
// # What a report counts for (I15)
//
// Its cluster's own Pods, sandbox ids and dispatches; because clusters may lie.
//
//   - Keys are adopted only from a cluster that is being recovered: TestI15AClusterIsNotAnsweredForAKeyThatItPlanted.
//   - Reports move no key that this ledger created, and restored keys neither to clusters that the request forbids nor from one that holds
//     them: TestI15AKeyIsNotTakenAway, TestI15ARestoredKeyMovesOnlyWhereItMayHaveGone.
//   - A sandbox id ends in the certificate's name, and has one key: TestI15ASandboxIDOfAnotherClusterIsNotTaken,
//     TestI15OneSandboxIsNotAdoptedForTwoKeys.
//   - requireClusters holds for what is adopted: TestI15RequireClustersHoldsForWhatIsAdopted.
//   - During a recovery only keys with the hub's proof count (package recovery): TestI15ALyingClusterPlantsNothingDuringARecovery,
//     TestI15AKeyWithoutAProofIsNeitherReturnedNorClaimed.
//   - A key that was adopted from a cluster counts for nothing where that cluster may not serve it (team, namespace, Env); because what it
//     may serve is the operator's word. It is compared at each call; because only the caller names all three. It is not claimed elsewhere
//     either, as the cluster may hold it from before (I2): TestI15ARecoveryBelievesNoClusterBeyondItsScope,
//     TestACancelEndsAKeyBeyondItsClustersScope.
//   - An attempt that no ledger can have created is refused: TestI15EpochsAreNotUsedUp.
//   - What is refused is logged, counted, shown in its cluster's state, and never stored: TestEndedRecordsOfOthers.
//
// # Without a key
//
//   - Claims write nothing, and move on when unclear: TestClaimsWithoutAKeyWriteNothing, TestWithoutAKeyAnUnclearOutcomeMovesOn.
//   - A claim ends with its caller: TestACallerThatLeavesTakesItsClaimAlong. A grant that arrives meanwhile is released (later: package
//     attach): TestAGrantWhoseCallerHasGoneIsReleased.
//   - startupTimeout bounds queueing and starting; by default the longest of the members that could serve, or of the one that holds the
//     claim: TestMembersSayHowLongClaimsMayTake.
//
// # Environment
//
//   - A claim's variables, workdir, execUser and files are neither stored nor sent to a worker: the sandbox's daemon gets them (package
//     environment) before the sandbox is returned: TestTheEnvironmentGoesNoFurther, TestAClaimsEnvironment of e2e/e2b.
//   - References to Secrets are stored and sent, as other parameters are: the worker decides by them before it takes a Pod, and reads the
//     values. A key stands for the references, not for the values; because a Secret may change.
//   - A key does not stand for variables, files and the rest; because a digest of a secret tells it. A repeated call sets its own.
//   - Where they cannot be set, the sandbox is released, unless an earlier call with the key has returned it: TestEquip.
//   - Only the sandbox's record tells whether its template has the daemon, so a claim without one is INVALID after its Pod was taken, and
//     that Pod is released: TestAnEnvironmentThatCannotBeSet.
//
// # Ends that a cluster has not confirmed
//
//   - They are repeated until it confirms them: TestAnEndThatIsNotConfirmedIsToldAgain, TestAnEndIsToldAgainWhileKeysAreMissing.
//   - Each cluster has its own bounds, of what is remembered and of calls in flight; because those that are silent, or lie, must leave room
//     for others (I7, I10): TestEndingsAreBounded, TestEndingsOfManyClustersTakeTurns, TestASilentClusterLeavesRoomForEndsOfOthers,
//     TestSilentClustersLeaveRoomForCallsToOthers. So have ends that follow from a call: TestASilentClusterLeavesRoomForWhatFollowsCalls.
//   - A place that a confirmed end leaves is the next one's: TestABurstOfEndsIsSentAsFastAsItsClusterConfirmsThem.
//
// # Expired keys
//
//   - A sweep drops all that has expired; because otherwise the ledger and its quotas fill up: TestASweepDropsAllThatHasExpired.
//   - A sweep has its own goroutine, and waits 10 s at most for each cluster; because a slow one must delay no end, no resumed claim and no
//     expiry of others: TestASlowClusterDelaysNoEndsAndNoExpiryOfOthers, TestASlowClusterDelaysNoResumption.
//   - A damaged record or index entry stays, and stops neither the hub nor a sweep: TestADamagedRecordStopsNothingElse.
//
// # What differs from the design
//
//   - The record has the request, not its hash; because a restart resumes claims without a caller.
//   - Stored times are wall clock. After a restart they shorten retries' deadlines; claims without a caller have all their time again
//     (I11): TestI11AnAcceptedClaimOutlivesAStepOfTheClock.
//   - Terminal records are here too, until their keys expire; because these must not be claimed again.
package claims
