// SPDX-License-Identifier: Apache-2.0

// Package hubstate defines the hub's files, their schemas, backup and restore.
//
// In: a directory or an archive. Out: open stores, or an archive.
//
//	claims.db    the ledger: which cluster holds which claim key. Its entry "ledger" has id and progress.
//	registry.db  the registered clusters. Its entry "ledger" names its ledger.
//
// Rules:
//
//   - There are two; because the second shows the loss of the first, and lists the clusters to ask. If their ids or epochs of the ledger
//     disagree, writes are lost.
//   - With a Sealer (package store) values are encrypted, in backups too; the manifest is in clear.
//   - A backup is a tar.gz: a manifest with versions and checksums, then a consistent copy of each file, claims first; because every
//     cluster in the ledger must be in the registry.
//   - An archive is verified in full, its files opened, checked and migrated, before anything is replaced.
//   - A restored ledger is marked; because it lacks later writes.
//   - A restored registry is merged with the existing one and loses nothing; because the hub waits for later clusters (I2) and keeps out
//     those forgotten since (I4). Catalogue, access keys, roles and allotments stay those of the existing one; because what was revoked
//     since stays revoked: TestARestoreBringsNoRevokedKeyBack. They are the backup's where a hub had begun anew, which another id of the
//     catalogue shows: TestARestoreOverARegistryThatWasBegunAnew.
//   - Both files have the secrets of the hub's proofs (Proofs), and a restore keeps those of both sides; because a hub without one file
//     must know what it sent (I15).
//   - A migration copies while hubs run, and ends with what was written last. The ledger gets another name, and knows how far the former
//     one
//     had come; because a hub that goes on there must be noticed: TestMigration, TestMigrationOnline.
package hubstate
