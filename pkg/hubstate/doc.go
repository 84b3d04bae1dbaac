// SPDX-License-Identifier: Apache-2.0

// Package hubstate defines the hub's state on disk: two files, their names and schemas, how they identify each other, and how
// they are backed up and restored.
//
// In go a directory, or an archive. Out come open stores, an archive, or a directory that a hub can start on.
//
//	claims.db    the ledger: which cluster holds which claim key. Its entry "ledger" has its id, and how complete it is.
//	registry.db  the registered clusters. Its entry "ledger" names the ledger that belongs to it.
//
// There are two files; because a hub that has lost the first detects the loss by the second, which lists the clusters to ask.
// Both carry the id of the ledger and its epoch. A hub whose files do not agree, or whose ledger was restored, has lost writes.
//
// # Backup and restore
//
//   - With a Sealer the values in both files are encrypted (package store), and so are those in a backup. The manifest is in clear.
//   - A backup is a tar.gz of both files, each a consistent copy, claims first; because every cluster in the ledger must be in
//     the registry. A manifest with versions and checksums precedes them.
//   - An archive is read and verified in full before anything is taken from it. The files are opened, checked and migrated before
//     they replace others.
//   - A restored ledger is marked as restored; because writes after the backup are missing, and the hub must know that.
//   - An existing registry is merged with the restored one and loses nothing; because the hub must wait for the keys of clusters
//     that registered after the backup (I2), and keep out those that were forgotten since (I4).
package hubstate
