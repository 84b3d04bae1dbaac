// SPDX-License-Identifier: Apache-2.0

// Package registrycopy keeps a copy, apart from the hub's volume, of the ledger's name, the registered and forgotten clusters, and the
// secrets that prove what the hub sent.
//
// In: the registry's records, and a Place for one small document: a file beside the CA, or a Secret. Out, for a hub that lost its volume: a
// registry with the clusters to wait for.
//
//   - Package recovery then restores the ledger (I2): TestI2AHubThatLostItsVolumeWaitsForItsClusters of package main. Without the document
//     it is new: it serves claim keys and admits forgotten clusters at once.
//   - The document is written before a name is bound, taken or returned, and a failed write fails that change; because it must never be
//     behind. It has no incarnations; workers remember theirs. A backup's record of the same cluster keeps what the document lacks:
//     TestABackupKeepsWhatTheCopyLacks.
//   - It is read only if the registry is missing or from a backup; because it may be the older otherwise. If it cannot be read then, the
//     hub does not start.
//   - The hub's CA is in it, in clear, and written before it signs a certificate for a cluster (package authority).
//   - The secrets (hubstate.Proofs) are in clear, like the CA's key, and written before the first cluster registers:
//     TestProofsSurviveTheVolume.
//   - The ledger's name follows within 30 s; a hub that reads an older epoch learns later ones from Pods.
package registrycopy
