// SPDX-License-Identifier: Apache-2.0

// Package store holds all durable state outside of Kubernetes, in a transactional key-value store with revisions.
//
// In: transactions (conditions, puts, deletes). Out: a revision, once they are on disk. Memory is a Store without a file. Package storetest
// is the conformance suite.
//
//   - An acknowledged transaction survives kill -9 and power loss.
//   - ErrConflict means that nothing changed. After any other error the outcome is unknown: read before deciding again (I2).
//   - The file is a bbolt file, open in one process. The committer batches the transactions that arrive while the disk is busy; because
//     bbolt's Batch delays a single writer.
//   - Lazy writes are committed together with the next write that has a waiting caller.
//   - A Store that several processes use is Shared: it has Watch, and elections, each of which has one leader at a time. A bbolt file is
//     not Shared; because the process that writes it is the one that reads it.
//   - Etcd is Shared. Reads are linearizable unless the context allows stale ones (AllowStale). A Range returns entries of one revision.
//     Every call ends within seconds; without a quorum it returns ErrUnavailable (TestEtcdWithoutQuorum). A Commit is sent once; because a
//     retry could meet its own write and return ErrConflict. A transaction that exceeds etcd's default limits fails with ErrTooLarge.
//   - Failure reports a lost quorum even if callers have less time than a call takes: TestEtcdWithoutQuorumInLittleTime. A read that may be
//     stale waits for the quorum for at most half of its caller's time.
//
// # etcd
//
//	<prefix>/<kind>/<key>       the entries; a group of lazy transactions is one transaction
//	<prefix>/layout/<kind>      the schema, whether values are encrypted, and whether a migration still fills the store
//	<prefix>/offices/<kind>/    the leaders of elections, with a lease
//
// A process that sees etcd at an earlier revision than before stops using it, and must restart: TestI2AnEtcdThatWasSetBackIsNotUsed,
// TestI2AnEtcdWhoseRevisionsRoseIsNotUsed.
//
// A store is encrypted from its first entry on, or never. To change that, migrate it to another prefix. CopyTo writes a bbolt file with the
// same content, as a backup.
//
// # Files
//
//   - A new file appears at its path only when it is complete, and never replaces another file: TestASecondFirstStartReplacesNothing.
//   - An existing file is read in full when it is opened, including free pages. It is rejected if it is damaged (ErrDamaged), written by a
//     newer build (ErrNewer) or in use (ErrLocked). An older schema is migrated in one transaction.
//   - Damage that is found later stops the store, not the process.
//   - Writes fail while the disk is full, and change nothing.
//
// # Encryption
//
// With a Sealer (package envelope) values are encrypted. Keys of entries, lengths, revisions and empty values are not.
//
//   - A file is encrypted in full or not at all. A plain file is copied when it is first opened with a Sealer, so that no plain value
//     remains in its free pages: TestAPlainFileIsEncrypted. A crash leaves either the plain or the encrypted file:
//     TestEncryptingSurvivesAPowerCut.
//   - Builds that do not know encryption reject an encrypted file. Opening it without a key fails with ErrEncrypted.
//   - Opening a file decrypts every value. If a key is missing (envelope.ErrNoKey, ErrWrongKey), nothing changes:
//     TestAnEncryptedFileNeedsItsKey. A value that was changed or moved is ErrDamaged: TestADamagedEntryIsFound.
//   - Rotation encrypts entries with a new key, in the same commits as callers' writes. In a file they keep their revisions, so no
//     condition fails: TestRotationRewritesEveryEntry. Free pages may keep old versions; Rewrite removes them. In etcd each entry gets a
//     new revision.
//   - A process that lacks the key of an entry that another process wrote to etcd cannot read the entry or follow the changes after it:
//     Watch returns envelope.ErrNoKey. So every replica must have a new key before one encrypts with it.
package store
