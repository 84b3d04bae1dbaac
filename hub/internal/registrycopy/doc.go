// SPDX-License-Identifier: Apache-2.0

// Package registrycopy keeps a copy of the ledger's identity, the registered and forgotten clusters, and the secrets of proofs, apart from
// the hub's volume.
//
// In: the registry's records, and a Place for one small document: a file beside the CA, or a Secret. Out, for a hub that lost its volume: a
// registry with the clusters to wait for.
//
//   - Package recovery then restores the ledger (I2): TestI2AHubThatLostItsVolumeWaitsForItsClusters of package main. Without the document
//     the hub is new: it serves claim keys and admits forgotten clusters at once.
//   - The document is written before a name is bound, taken or returned, and a failed write fails that change; because the document must
//     never be behind. It has no incarnations, because workers remember theirs. A backup's record of the same cluster keeps the fields that
//     the document lacks: TestABackupKeepsWhatTheCopyLacks.
//   - The document has the revocations and the scope of a cluster that was invited and has not registered yet; because its certificate
//     outlives the volume: TestWhatIsRecordedOfAnInvitedClusterSurvivesTheVolume.
//   - The document is read only if the registry is missing or from a backup; because otherwise the document may be older. If it cannot be
//     read then, the hub does not start.
//   - The document includes the hub's CA, unencrypted. It is written before the CA signs a certificate for a cluster (package authority).
//   - The secrets (hubstate.Proofs) are unencrypted, like the CA's key, and written before the first cluster registers:
//     TestProofsSurviveTheVolume.
//   - A change of the ledger's identity is written within 30 s. A hub that reads an older epoch learns later ones from Pods.
package registrycopy
