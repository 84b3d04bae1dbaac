// SPDX-License-Identifier: Apache-2.0

// Package recovery decides whether the hub's ledger of claim keys is complete, and completes a lost one.
//
// In go the entries by which the two files name their ledger (package hubstate), and the clusters whose key indexes are in the
// ledger. Out come whether claims with a key may be served, and the numbers of their attempts.
//
// # When the hub is recovering
//
//   - The registry records its ledger and the ledger's progress, every 30 s. If the ledger is missing, another one, an older copy
//     or a restored backup, the hub is recovering; because keys may have been returned that are not in this ledger:
//     TestAnotherLedgerIsNotOurs, TestAnOlderCopyOfTheLedgerIsNotTheLedger.
//   - A restart with both files intact, or with a new registry, recovers nothing: TestARestartWithBothFilesRecoversNothing,
//     TestALostRegistryLeavesTheLedger.
//   - No claim with a key is served until every registered cluster has sent its key index, or an operator accepts the loss:
//     TestALostLedgerIsWholeWhenAllClustersWereHeard.
//   - After an accepted loss a cluster whose index is missing gets no claims with a key; because it may hold them:
//     TestAnAcceptedLossStillNamesWhomItHasNotHeard.
//   - The new ledger's name is written to the ledger before the registry; because a restart in between must start over. The
//     ledger lists the clusters whose index has arrived; because a later restart continues from there.
//
// # Epochs
//
// An attempt's number is its epoch times ten million plus its number in the epoch. A ledger that replaces a lost one has a higher
// epoch: so the number shows which ledger created it, and the later of two attempts has the higher number. Within an epoch the
// lower attempt was abandoned for the higher one and was never returned; between epochs both may have been.
//
//   - Epoch and number share one integer; because workers of every version store it on Pods and compare it as one: to an older
//     worker a separate epoch would look like the same attempt again.
//   - While the hub is recovering, an attempt of the current epoch or a later one comes from a ledger that is in neither file, as
//     with a backup from before an earlier loss. The epoch rises above it: TestEpochs.
//   - It rises by 8 at most in one recovery, and never beyond half of all; because a cluster that names the last epoch would
//     leave none for the next loss: TestI15EpochsAreNotUsedUp of package claims.
//
// # Where both files are lost (I2)
//
//   - Package registrycopy keeps the clusters and the ledger's name elsewhere: the hub recovers as if only the ledger were lost.
//   - Without that copy the hub is a new one, and a volume that was restored with both files looks intact. Such a hub believes no
//     cluster about keys (I15): a key can get a second sandbox. The hub counts the keys that clusters name and that it did not
//     send (atoll_hub_claim_keys_unsent_total); an operator notices the loss there.
package recovery
