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
//   - There are two files; because the second shows that the first was lost, and lists the clusters to ask. If the two disagree about the
//     id or the epoch of the ledger, writes were lost.
//   - With a Sealer (package store) values are encrypted, in backups too. The manifest is not encrypted.
//   - A backup is a tar.gz: a manifest with versions and checksums, then a consistent copy of each file, claims first; because every
//     cluster in the ledger must be in the registry.
//   - An archive is verified in full, and its files are opened, checked and migrated, before anything is replaced.
//   - A restored ledger is marked; because it lacks later writes.
//   - A restored registry is merged with the existing one, and no entry is lost; because the hub must wait for clusters that registered
//     after the backup (I2) and keep out those forgotten after it (I4). The catalogue, access keys, roles and allotments of the existing
//     registry are kept; because what was revoked after the backup must stay revoked: TestARestoreBringsNoRevokedKeyBack. They are taken
//     from the backup if the existing registry was begun anew, which a different catalogue id shows:
//     TestARestoreOverARegistryThatWasBegunAnew.
//   - Both files contain the secrets of the hub's proofs (Proofs), and a restore keeps the secrets of both sides; because a hub that lost
//     one file must still recognize what it sent (I15).
//   - A migration copies while hubs run, and copies the last writes after they have stopped. The target's ledger gets a new id and records
//     the progress of the former one; because a hub that continues on the source must be detected: TestMigration, TestMigrationOnline.
package hubstate
