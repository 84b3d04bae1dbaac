// SPDX-License-Identifier: Apache-2.0

// Package recovery decides whether the hub's ledger of claim keys is complete, and completes a lost one.
//
// In: how the two files name their ledger (package hubstate), and the clusters whose key indexes it has. Out: whether claims with a key may
// be served, and attempts' numbers.
//
// # When the hub is recovering
//
//   - The registry records its ledger and the ledger's progress, every 30 s. With a missing, other, older or restored ledger it is
//     recovering; because returned keys may be missing: TestAnotherLedgerIsNotOurs, TestAnOlderCopyOfTheLedgerIsNotTheLedger.
//   - A restart with both files, or with a new registry, recovers nothing: TestARestartWithBothFilesRecoversNothing,
//     TestALostRegistryLeavesTheLedger.
//   - No claim with a key is served until every registered cluster sent its key index, or an operator accepts the loss:
//     TestALostLedgerIsWholeWhenAllClustersWereHeard.
//   - Then a cluster not heard gets no claims with a key; because it may hold them: TestAnAcceptedLossStillNamesWhomItHasNotHeard.
//   - The new ledger's name is written to the registry last; so a restart in between starts over. Clusters heard are in the ledger; so
//     later restarts continue.
//
// # Several replicas
//
//   - Both stores are in one etcd and are lost together; so no progress is recorded there, and workers' marks show a set back.
//   - Replicas that start at a time make one ledger: TestReplicasMakeOneLedger. What one notices, all wait for, and what one hears counts
//     for all: TestI2ARecoveryIsOneForAllReplicas. The ledger is written before the registry, and names those that it replaced:
//     TestARenamedLedgerIsNotAnotherOne.
//   - Without etcd's quorum streams begin, and claims with a key wait until the marks are compared:
//     TestI2AMarkIsComparedOnceTheStoreResponds.
//
// # Epochs
//
// An attempt's number starts with its epoch, which rises with each lost ledger. Within an epoch the lower of two attempts was never
// returned; between epochs both may have been.
//
//   - Both are one integer; because workers of every version compare it.
//   - While recovering, the epoch rises above any attempt of the current or a later one; because a ledger in neither file created it:
//     TestEpochs.
//   - It rises by 8 at most in one recovery, never beyond half of all; because a cluster could name the last: TestI15EpochsAreNotUsedUp of
//     package claims.
//
// # Proofs (I15)
//
// The hub stamps each dispatch of a key with a MAC over cluster, uid, key hash and attempt. The worker keeps it on the Pod and in the
// record of its end, and sends it with the key; because a cluster could name keys that it was never sent.
//
//   - The secret is in both files and the registry's copy, and outlives each. All that a restore finds verify:
//     TestAProofOutlivesEitherFile, TestProofsOfARestoredHub.
//   - A valid proof counts, a forged one is a lie: TestI2HonestClustersRecoverTheirKeys, TestI15ALyingClusterPlantsNothingDuringARecovery
//     of package claims.
//   - A key without one is of an older hub or worker, or made up. It is neither returned (I15) nor claimed (I2) until another cluster
//     proves it, its owner cancels it, or its cluster is forgotten or holds it no more:
//     TestI15AKeyWithoutAProofIsNeitherReturnedNorClaimed.
//   - Also with a proof, a key beyond what its cluster may serve now is neither: TestI15ARecoveryBelievesNoClusterBeyondItsScope of
//     package claims.
//   - For 7 days after an older hub's upgrade a loss takes keys without proofs; because older claims have none:
//     TestKeysWithoutAProofAreTakenForAWhile.
//
// # A store that was set back as a whole (I2)
//
// Nothing in it shows that. Workers remember the furthest mark (ledger's id, revision, MAC) of the hub's dispatches and
// acknowledgements, and name it in their Hello.
//
//   - A mark beyond the ledger, or of a ledger that this one never replaced, begins a recovery; all streams begin anew:
//     TestDecideMark, TestI2AVolumeThatWasSetBackIsNoticed, TestI2AWorkerNoticesThatTheStoreWasSetBack of package attach, fault 26 of
//     e2e/sim.
//   - A mark has the number of the store's commits beside its revision; because a restore with --bump-revision, or others' writes to the
//     etcd, raise the revision: TestI2AnEtcdWhoseRevisionsRoseIsNoticed. Builds before do not count, nor do they drop the marks of
//     those that do.
//   - A mark without this hub's MAC changes nothing and is logged; because a cluster could invent it (I15).
//   - Calls about keys wait up to 5 s after the hub's start for the Hello of each registered cluster. One that is away for longer tells
//     later; until then a key that only it holds can get a second sandbox.
//   - Workers store marks every 5 min: a set-back together with new leaders in all clusters may go unnoticed for what came after.
//
// # Where both files are lost (I2)
//
//   - Package registrycopy's copy makes it a lost ledger.
//   - Without it the hub is new. It believes no cluster about keys (I15), so a key can get a second sandbox;
//     atoll_hub_claim_keys_unsent_total tells operators, as does the log of marks with other secrets.
package recovery
