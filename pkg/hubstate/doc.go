// SPDX-License-Identifier: Apache-2.0

// Package hubstate is what a hub keeps on disk: two files, what they are called and which schema they have, what makes
// them a pair, and how they are backed up and put back.
//
// In go a directory, or an archive; out come open stores, an archive, or a directory that a hub can start on.
//
//	claims.db    the ledger: who holds which claim key. Its entry "ledger" says which ledger it is, and how whole.
//	registry.db  which clusters there are. Its entry "ledger" names the ledger that belongs to it.
//
// They are apart so that a hub which has lost the first can tell by the second that it did: it knows whom to ask. Both
// carry the id of the ledger and its epoch. A hub whose files do not agree, or whose ledger was restored, has lost writes.
//
// A backup is a tar.gz of both files, each a copy of one moment, claims first: every cluster that the ledger names is in
// the registry. In front of them is a manifest with versions and checksums. Nothing is taken from an archive before all of
// it has been read and compared, and the files are opened, checked and migrated before they take anybody's place. The
// ledger is marked as restored then: what was written after the backup is missing, and the hub must not act as if not. The
// registry that is there loses nothing to an older one: the two are merged, so that the hub waits for the keys of clusters
// that registered after the backup (I2), and keeps out those that were forgotten since (I4).
package hubstate
