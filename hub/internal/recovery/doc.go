// SPDX-License-Identifier: Apache-2.0

// Package recovery knows whether the hub's ledger of claim keys is complete, and completes a lost one.
//
// In go the entries by which the two files name their ledger (package hubstate), and which clusters' key indexes have been
// taken into the ledger; out come whether claims with a key may be served, and the numbers of their attempts.
//
// # When the hub is recovering
//
//   - The registry remembers its ledger and how far that had come, every 30 s. If the ledger is missing, another one, an older
//     copy or a restored backup, the hub is recovering; because keys may have been returned that this ledger does not know:
//     TestAnotherLedgerIsNotOurs, TestAnOlderCopyOfTheLedgerIsNotTheLedger.
//   - A restart with both files intact, or with a new registry, recovers nothing: TestARestartWithBothFilesRecoversNothing,
//     TestALostRegistryLeavesTheLedger.
//   - No claim with a key is served until every registered cluster has sent its key index, or an operator accepts the loss:
//     TestALostLedgerIsWholeWhenAllClustersWereHeard.
//   - After an accepted loss a cluster that was not heard gets no claims with a key; because it may hold them:
//     TestAnAcceptedLossStillNamesWhomItHasNotHeard.
//   - The new ledger's name is written to the ledger before the registry; because a restart in between must begin anew. Which
//     clusters were heard is in the ledger, so that a later restart goes on.
//
// # Epochs
//
// An attempt's number is its epoch times ten million plus its number in the epoch. A ledger that follows a lost one has a
// higher epoch: so a number tells which ledger made it, and the later of two attempts is the higher number. Within an epoch
// the lower one was given up for the higher one and was never returned; between epochs both may have been.
//
//   - Epoch and number share one integer; because workers of every age store it on Pods and compare it as one: an epoch beside
//     it would look to an older worker like the same attempt again.
//   - While the hub is recovering, an attempt of our epoch or a later one was made by a ledger that the files do not know of, as
//     with a backup from before an earlier loss. The epoch rises above it: TestEpochs.
//   - It rises by 8 at most in one recovery, and never beyond half of all; because a cluster that names the last epoch would
//     leave none for the next loss: TestI15EpochsAreNotUsedUp of package claims.
//
// # Where both files are lost (I2)
//
//   - Package registrycopy keeps the clusters and the ledger's name elsewhere: the hub recovers as if the ledger alone were lost.
//   - Without that copy the hub is a new one, and a volume that was set back with both files looks intact. Such a hub believes
//     no cluster about keys (I15): a key can be returned a second sandbox. It counts the keys that clusters name and that it did
//     not send (atoll_hub_claim_keys_unsent_total), by which an operator notices the loss.
package recovery
