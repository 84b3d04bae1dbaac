// SPDX-License-Identifier: Apache-2.0

// Package claims turns a request into one sandbox of one cluster, and remembers it by its claim key.
//
// In: requests of a Principal, Views, responses of workers. Out: sandboxes or typed errors. decide.go is pure.
//
// # With a key: at most one sandbox is ever returned for it (I2)
//
//   - If the store fails, nothing is claimed: TestAFailedStoreClaimsNothing.
//   - A durable record (cluster, attempt, request) precedes every dispatch; because a retry must repeat the same dispatch:
//     TestI2RecordIsDurableBeforeTheDispatch, TestI2HubDiesAfterTheDispatch, TestI2SameKeySameSandbox.
//   - The worker's part is in its package claim: TestI2ANewLeaderListsBeforeItServes, TestI2NoResponseWithoutTheLease,
//     TestI2OfTwoPodsTheHigherIncarnationStays.
//   - A retry joins the running flight and has the deadline of the flight's first caller: TestI2RetriesJoinTheFlight,
//     TestI2JoinersShareTheFirstDeadline, TestAKeyedClaimOutlivesItsCaller.
//   - A claim moves to another cluster only if it was refused, was certainly not sent, or its cluster was forgotten. It moves as the next
//     attempt, after another write: TestI2OnlyARefusalOrNothingSentGoesElsewhere, TestI2ForgettingAClusterIsThePermissionToGoElsewhere.
//   - A claim with an unclear outcome stays with its cluster; because a Pod may carry it. After the deadline the call fails with
//     OUTCOME_UNKNOWN: TestI2UnclearStaysWithItsCluster.
//   - Workers remember refusals and cancels for 10 min, which is longer than any dispatch is in flight: TestRefusalIsRemembered,
//     TestCanceledKey, TestWhatADispatchComesTo of package attach.
//   - A cancel, and a release of a sandbox with a key, is durable before it is sent; because a grant may follow. The hub releases such a
//     grant. It also releases a Pod whose record ended or moved to a later attempt: TestI2AGrantAfterTheCancelIsReleased,
//     TestI2ACancelReachesAClusterThatWasAway, TestI2AReleaseIsDurableBeforeItIsSent, TestI2ALaterAttemptMakesTheEarlierPodAStray.
//   - The hub also releases a Pod of a refused attempt, which a write from before the refusal created:
//     TestI2ASandboxThatAppearsAfterItsRefusalEnds.
//   - A key that returned a sandbox is never claimed again; because a worker that lost its memory would create a second one:
//     TestI2AReturnedKeyIsNeverClaimedAgain.
//   - A call conflicts if its parameters differ from those of the record. It does not conflict if they differ only from those of a running
//     flight: TestI2OtherParametersConflict, TestAFlightThatProvedNothingIsNoConflict.
//   - An ended key returns its terminal record until the retention is over. A record without an end stays until its cluster holds nothing
//     for the key: TestI2AfterTheEndTheTerminalRecord, TestSweepKeepsWhatMayBeHeld.
//   - A call with wait NONE returns the claim as it was recorded, or the error of a flight that recorded nothing; because an empty sandbox
//     would look like success: TestWaitNoneIsAnsweredWhenDurable, TestWaitNoneGetsTheErrorOfAFlightWithoutARecord.
//   - The record of a refused claim keeps only names and a digest, for 15 min: TestI14ARefusedClaimKeepsNoRequest.
//   - Each team has a quota of keys and bytes, and so has each restricted caller without a team. Beyond it calls fail with RATE_LIMITED:
//     TestI14ATeamKeepsNoMoreKeysThanItsQuota, TestI14ACallerWithoutATeamIsChargedItself.
//   - The hash of a key of a worker's local API includes the worker's ClusterID, and no index that the worker sends has it.
//
// # Several replicas of the hub
//
// The replicas share a store, and each of them may serve any key. Replicas that get calls for one key at once meet at the record, by
// compare-and-swap, and at the worker, which joins the calls of one attempt. With one replica no write is added:
// TestOneReplicaWritesNoMore.
//
//   - A conflict is no error: the flight continues with the record that it finds: TestI2TwoReplicasAskedAtOnceReturnOneSandbox.
//   - Before a replica sends an attempt that another replica wrote, it marks the attempt as joined; because from then on the writer's "not
//     sent" proves nothing, and the writer's record of the next attempt must conflict: TestI2NotSentMovesNoClaimThatAnotherReplicaJoined.
//   - A sandbox is recorded before it is returned; because the next call may reach another replica, and a late grant must find the key's
//     sandbox: TestI2ASandboxIsRecordedBeforeItIsReturned, TestI2AFrozenReplicaReturnsNoSecondSandbox,
//     TestI2WithoutItsRecordASandboxIsNotReturned.
//   - If the key has ended meanwhile, or has another sandbox, the hub ends the sandbox and does not return it:
//     TestI2ACancelAtAnotherReplicaEndsTheClaim.
//   - A claim that waits for its cluster reads its record again; because another replica may have ended it:
//     TestACancelAtAnotherReplicaEndsAClaimThatWaitsForItsCluster.
//   - A flight accepts no more callers once it reads the state that it returns; because a release or a cancel at another replica may have
//     returned before their calls: TestACallIsNotAnsweredFromBeforeIt.
//   - Whatever a replica did before it died, another replica returns the same sandbox: TestI2AReplicaDies.
//   - One replica, the leader, resumes dead replicas' claims without a waiting caller, and sweeps. Hints say which replicas are dead. A
//     wrong hint only delays: TestOpenClaimsOfADeadReplicaAreResumedOnce, TestAResumedClaimIsItsNewReplicas,
//     TestAReplicaThatRestartsResumesItsOpenClaims, TestOneReplicaSweeps.
//   - If the store does not respond, a claim with a key fails with UNAVAILABLE after 3 s, and later ones at once. Calls that do not need
//     the store continue: TestWithoutTheStoreOnlyClaimsWithAKeyAreRefused.
//   - Each replica counts its own writes against a team's quota, and all records every 5 min. In between a team may exceed its quota by at
//     most one quota for each further replica.
//
// # The last idle Pod
//
// The dispatch of a claim that is routed to an idle Pod says so (idleOnly), while other candidates are left. A worker without an idle Pod
// then refuses the claim, and the claim goes to the next candidate; because another replica or a local caller has taken the Pod, and a hop
// is shorter than a wait. If no candidate has an idle Pod, or two candidates had none, the claim may wait:
// TestAClaimWhoseIdlePodIsTakenGoesOnBeforeItWaits, TestOnlyACandidateWithoutAnIdlePodIsAskedAgain. The same rule applies to a claim whose
// cluster another replica or process chose: TestAClaimOfADeadReplicaWaitsForNoPodWhileOthersAreIdle.
//
// # A Pod that becomes idle elsewhere
//
// While a claim may wait in a queue, the hub checks every second whether another candidate has had an idle Pod for a second. It reserves
// the Pod, so that one Pod moves one claim, and requests that the worker refuse the claim if it still waits (Withdraw). Only that refusal
// moves a claim with a key. A claim without a key leaves the queue as if its caller had left: TestAWaitingClaimGoesWhereAPodIsIdle,
// TestI2AClaimThatWasGrantedIsNotMoved, TestOneIdlePodMovesOneClaim, TestWhatKeepsAWaitingClaim; of the worker
// TestI2OnlyAWaitingClaimIsWithdrawn. Which of the waiting claims goes is random; because only the worker knows their turns.
//
// # A ledger that was lost, or restored from a backup
//
// Package recovery detects the loss. The key indexes of clusters, with ended sandboxes and running claims, complete the ledger (bearingOf).
// The hub trusts them; because nothing can confirm them.
//
//   - Until the ledger is complete, calls about unknown keys, and creates with a key, fail with RECOVERING:
//     TestI2ALostLedgerAnswersNoKeyBeforeAllClustersWereHeard.
//   - An unknown key is adopted; because its Pod may have been returned. The first retry that does not contradict the sandbox sets the
//     request (user, Env, labels, metadata, requireClusters): TestI2AnAdoptedKeyTakesTheParametersOfItsFirstRetry.
//   - A retry joins a running claim, and returns an ended sandbox as ended: TestI2AClaimUnderWayIsJoined,
//     TestI2AKeyWhoseSandboxHadEndedIsNotClaimedAgain.
//   - If two clusters have one key, the later attempt is returned. The earlier one ends, unless a ledger was lost in between (I6):
//     TestI2OfTwoClustersWithOneKeyTheLaterAttemptStays, TestI6APodThatMayHaveBeenReturnedStays.
//   - Once an operator has accepted a loss, no key is sent to a cluster that was not heard, however many there are; because that cluster
//     may hold the key: TestI2NoUnheardClusterIsAskedHoweverManyThereAre.
//   - A restored record follows its key to a later attempt, unless its sandbox was returned or ended, or its cluster holds the earlier
//     attempt: TestI2ARestoredLedgerFollowsKeysThatMovedOn.
//   - The ledger records sandboxes that a restored etcd lost as ended: TestSandboxesThatARestoredEtcdLostAreRecordedAsEnded.
//   - A recovery and a search for lost sandboxes skip a damaged record; because it says nothing about others. Its key is neither returned
//     nor claimed: TestADamagedRecordKeepsNoClusterUnheard, TestADamagedRecordHidesNoLostSandbox.
//   - A damaged record does not delay the other ends of its batch; because a worker sends no batch before the previous one is acknowledged:
//     TestADamagedRecordDelaysNoEndsOfOthers. Nor does a record that must wait for another cluster:
//     TestAClusterThatIsAwayDelaysNoEndsOfAnother.
//
// # What a report counts for (I15)
//
// A report counts for the cluster's own Pods, sandbox ids and dispatches only; because clusters may lie.
//
//   - The hub adopts keys only from a cluster that takes part in a recovery: TestI15AClusterIsNotAnsweredForAKeyThatItPlanted.
//   - A report moves no key that this ledger created. It moves a restored key neither to a cluster that the request forbids nor from a
//     cluster that holds the key: TestI15AKeyIsNotTakenAway, TestI15ARestoredKeyMovesOnlyWhereItMayHaveGone.
//   - A sandbox id ends in the name in the cluster's certificate, and belongs to one key: TestI15ASandboxIDOfAnotherClusterIsNotTaken,
//     TestI15OneSandboxIsNotAdoptedForTwoKeys.
//   - requireClusters applies to adopted keys as well: TestI15RequireClustersHoldsForWhatIsAdopted.
//   - During a recovery only keys with the hub's proof count (package recovery): TestI15ALyingClusterPlantsNothingDuringARecovery,
//     TestI15AKeyWithoutAProofIsNeitherReturnedNorClaimed.
//   - An adopted key does not count if its cluster may not serve the key's team, namespace and Env; because the operator decides what a
//     cluster may serve. The hub checks this at each call; because only the caller names all three. The key is not claimed elsewhere
//     either, as the cluster may hold it from before (I2): TestI15ARecoveryBelievesNoClusterBeyondItsScope,
//     TestACancelEndsAKeyBeyondItsClustersScope.
//   - The hub ignores an attempt that no ledger can have created: TestI15EpochsAreNotUsedUp.
//   - Ignored claims are logged, counted, shown in their cluster's state, and never stored: TestEndedRecordsOfOthers.
//
// # Without a key
//
//   - A claim writes nothing, and goes to the next candidate after an unclear outcome: TestClaimsWithoutAKeyWriteNothing,
//     TestWithoutAKeyAnUnclearOutcomeMovesOn.
//   - A claim ends when its caller leaves: TestACallerThatLeavesTakesItsClaimAlong. A grant that arrives meanwhile is released (a later
//     one: package attach): TestAGrantWhoseCallerHasGoneIsReleased.
//   - startupTimeout bounds queueing and starting. Its default is the longest timeout of the members that could serve the claim, or that of
//     the member that holds it: TestMembersSayHowLongClaimsMayTake.
//
// # Environment
//
//   - A claim's variables, workdir, execUser and files are neither stored nor sent to a worker. The daemon of the sandbox gets them
//     (package environment) before the sandbox is returned: TestTheEnvironmentGoesNoFurther, TestAClaimsEnvironment of e2e/e2b.
//   - References to Secrets are stored and sent like other parameters: the worker decides by them before it takes a Pod, and reads the
//     values. A key stands for the references, not for the values; because a Secret may change.
//   - A key does not stand for variables, files and the other fields; because a digest of a secret reveals it. A repeated call sets its
//     own.
//   - If the environment cannot be set, the hub releases the sandbox, unless an earlier call with the key has returned it: TestEquip.
//   - Only the sandbox's record shows whether its template has the daemon. So if the template has no daemon, a claim with an environment
//     fails with INVALID after its Pod was taken, and the hub releases that Pod: TestAnEnvironmentThatCannotBeSet.
//
// # Ends that a cluster has not confirmed
//
//   - The hub repeats an end until the cluster confirms it: TestAnEndThatIsNotConfirmedIsSentAgain,
//     TestAnEndIsToldAgainWhileKeysAreMissing.
//   - Each cluster has its own bounds for remembered ends and for calls in flight; because silent or lying clusters must leave room for
//     others (I7, I10): TestEndingsAreBounded, TestManyClustersShareTheRoomForEndings, TestASilentClusterLeavesRoomForEndsOfOthers,
//     TestSilentClustersLeaveRoomForCallsToOthers. The same bounds apply to ends that follow from a call:
//     TestASilentClusterLeavesRoomForWhatFollowsCalls.
//   - A confirmed end frees its slot for the next end of the cluster: TestABurstOfEndsIsSentAsFastAsItsClusterConfirmsThem.
//
// # Expired keys
//
//   - A sweep drops all expired records; because otherwise the ledger and its quotas fill up: TestASweepDropsAllThatHasExpired.
//   - A sweep has its own goroutine and waits at most 10 s for each cluster; because a slow cluster must not delay ends, resumed claims and
//     the expiry of others: TestASlowClusterDelaysNoEndsAndNoExpiryOfOthers, TestASlowClusterDelaysNoResumption.
//   - A damaged record or index entry stays, and stops neither the hub nor a sweep: TestADamagedRecordStopsNothingElse.
//
// # What differs from the design
//
//   - The record has the request, not its hash; because a restart resumes claims without a caller.
//   - Stored times are wall-clock times. After a restart they shorten the deadlines of retries. Claims without a waiting caller get their
//     full time again (I11): TestI11AnAcceptedClaimOutlivesAStepOfTheClock.
//   - The ledger also keeps terminal records until their keys expire; because these keys must not be claimed again.
package claims
