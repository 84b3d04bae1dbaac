// SPDX-License-Identifier: Apache-2.0

// Package recovery decides whether the hub's ledger of claim keys is complete, and completes a lost one.
//
// In: the identity of the ledger in both files (package hubstate), and the clusters whose key indexes the ledger has. Out: whether claims
// with a key may be served, and the numbers of attempts.
//
// # When the hub is recovering
//
//   - The registry records the ledger's identity, and every 30 s its progress. The hub is recovering if the ledger is missing, is not the
//     recorded one, is older than the recorded progress, or was restored; because returned keys may be missing: TestAnotherLedgerIsNotOurs,
//     TestAnOlderCopyOfTheLedgerIsNotTheLedger.
//   - A restart with both files, or with a new registry, starts no recovery: TestARestartWithBothFilesRecoversNothing,
//     TestALostRegistryLeavesTheLedger.
//   - No claim with a key is served until every registered cluster has sent its key index, or an operator accepts the loss:
//     TestALostLedgerIsWholeWhenAllClustersWereHeard. An index that arrived before the loss was noticed does not count:
//     TestI2AnIndexFromBeforeALossDoesNotCountForIt of package claims. Neither does a later one of a stream that was welcomed before the
//     loss: TestI2AReportDuringALossDoesNotCount of package attach.
//   - After an accepted loss, a cluster that was not heard gets no claims with a key; because it may hold them:
//     TestAnAcceptedLossStillNamesWhomItHasNotHeard.
//   - The new ledger's identity is written to the registry last, so that a restart in between starts over. The ledger records which
//     clusters were heard, so that later restarts continue.
//
// # Several replicas
//
//   - Both stores are in one etcd and are lost together; so no progress is recorded there, and only workers' marks show a set-back.
//   - Replicas that start at the same time create one ledger: TestReplicasMakeOneLedger. When one replica notices a loss, all wait, and a
//     cluster that one replica hears counts for all: TestI2ARecoveryIsOneForAllReplicas. The ledger is written before the registry, and
//     names the ledgers that it replaced: TestARenamedLedgerIsNotAnotherOne.
//   - Without a quorum of etcd streams begin, but claims with a key wait until the marks are compared:
//     TestI2AMarkIsComparedOnceTheStoreResponds.
//
// # Epochs
//
// An attempt's number starts with its epoch, which rises with each lost ledger. Within an epoch, the sandbox of the lower of two attempts
// was never returned. Across epochs, both may have been returned.
//
//   - Epoch and attempt are one integer; because workers of every version compare it.
//   - While recovering, the epoch rises above any attempt of the current or a later one; because a ledger in neither file created it:
//     TestEpochs.
//   - The epoch rises by at most 8 in one recovery, and never beyond half of all epochs; because a cluster could name the last one:
//     TestI15EpochsAreNotUsedUp of package claims.
//
// # Proofs (I15)
//
// The hub adds to each dispatch of a key a MAC over cluster, uid, key hash and attempt. The worker keeps it on the Pod and in the terminal
// record, and sends it with the key; because otherwise a cluster could name keys that it was never sent.
//
//   - The secret is in both files and in the registry's copy, so that it outlives each of them. All secrets that a restore finds are used
//     for verification: TestAProofOutlivesEitherFile, TestProofsOfARestoredHub.
//   - A valid proof counts. A forged proof means that the cluster lies: TestI2HonestClustersRecoverTheirKeys,
//     TestI15ALyingClusterPlantsNothingDuringARecovery of package claims.
//   - A key without a proof comes from an older hub or worker, or is made up. It is neither returned (I15) nor claimed (I2) until another
//     cluster proves it, its owner cancels it, or its cluster is forgotten or no longer holds it:
//     TestI15AKeyWithoutAProofIsNeitherReturnedNorClaimed.
//   - Even with a proof, a key that its cluster may not serve now is neither returned nor claimed:
//     TestI15ARecoveryBelievesNoClusterBeyondItsScope of package claims.
//   - For 7 days after the upgrade of an older hub, a recovery accepts keys without proofs; because older claims have none:
//     TestKeysWithoutAProofAreTakenForAWhile.
//
// # A store that was set back as a whole (I2)
//
// The store itself does not show this. Workers remember the furthest mark (the ledger's id, revision, MAC) in the hub's dispatches and
// acknowledgements, and name it in their Hello.
//
//   - A mark that is beyond the ledger, or of a ledger that this one never replaced, starts a recovery, and all streams begin again:
//     TestDecideMark, TestI2AVolumeThatWasSetBackIsNoticed, TestI2AWorkerNoticesThatTheStoreWasSetBack and
//     TestI2AStreamThatWasWelcomedBeforeALossBeginsAgain of package attach, fault 26 of e2e/sim.
//   - Besides the revision, a mark has the number of the store's commits; because a restore with --bump-revision, or other writes to the
//     etcd, raise the revision: TestI2AnEtcdWhoseRevisionsRoseIsNoticed. Earlier builds do not count commits, and do not drop the marks of
//     builds that do.
//   - A mark without this hub's MAC is logged and ignored; because a cluster could invent it (I15).
//   - Calls about keys wait up to 5 s after the hub's start for the Hello of each registered cluster. A cluster that is away for longer
//     reports its mark later. Until then, a key that only this cluster holds can get a second sandbox.
//   - Workers store marks every 5 min: if a set-back coincides with new leaders in all clusters, the loss of later writes may go unnoticed.
//
// # Where both files are lost (I2)
//
//   - With the copy of package registrycopy, the loss of both files counts as a lost ledger.
//   - Without the copy the hub is new. It believes no cluster about keys (I15), so a key can get a second sandbox.
//     atoll_hub_claim_keys_unsent_total and the log of marks with other secrets show this to operators.
package recovery
