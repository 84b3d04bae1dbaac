// SPDX-License-Identifier: Apache-2.0

// Package store is the one home of durable state outside of Kubernetes: a transactional key-value store with revisions.
//
// In: transactions (conditions, puts, deletes). Out: a revision, once they are on disk. Memory is the same without a file. Package
// storetest is the conformance suite.
//
//   - An acknowledged transaction survives kill -9 and power loss.
//   - ErrConflict means that nothing changed. After any other error the outcome is unknown: read before deciding again (I2).
//   - The file is bbolt's, for one process. The committer batches what arrives while the disk is busy; because bbolt's Batch delays a lone
//     writer.
//   - Lazy writes are committed with the next that has a waiting caller.
//   - A store of several processes is Shared: it has Watch, and offices that one process holds at a time. bbolt's is not; because the
//     process that writes is the one that reads.
//   - Etcd is Shared. Reads are linearizable unless the context allows less (AllowStale), a Range is of one revision, and every call ends
//     within seconds: without a quorum with ErrUnavailable (TestEtcdWithoutQuorum). A Commit is sent once; because a second one could
//     meet its own write and return ErrConflict. A transaction over etcd's default limits is ErrTooLarge.
//   - Failure tells of a lost quorum also where callers have less time than a call: TestEtcdWithoutQuorumInLittleTime. A read that may be
//     stale waits for the quorum for half of its caller's time.
//
// # etcd
//
//	<prefix>/<kind>/<key>       the entries; one request's lazy transactions are one transaction
//	<prefix>/layout/<kind>      schema, whether values are encrypted, whether a migration fills it
//	<prefix>/offices/<kind>/    who leads, with a lease
//
// A process that finds etcd at an earlier revision than it has seen uses it no more, and starts anew:
// TestI2AnEtcdThatWasSetBackIsNotUsed, TestI2AnEtcdWhoseRevisionsRoseIsNotUsed.
//
// A store is encrypted from its first entry on, or never; another prefix and a migration change that. CopyTo writes a bbolt file of the
// same content: a backup.
//
// # Files
//
//   - A new file appears complete, and replaces none: TestASecondFirstStartReplacesNothing.
//   - An existing file is read in full when opened, free pages included, and refused if damaged (ErrDamaged), of a newer build (ErrNewer)
//     or in use (ErrLocked). An older schema is migrated in one transaction.
//   - Damage found later ends the store, not the process.
//   - A full disk fails writes until there is room, and changes nothing.
//
// # Encryption
//
// With a Sealer (package envelope) values are encrypted; entries' keys, lengths, revisions and empty values are in clear.
//
//   - A file is encrypted in full or not at all. A plain one is copied when first opened with a Sealer, so free pages tell nothing:
//     TestAPlainFileIsEncrypted. A crash leaves one of the two: TestEncryptingSurvivesAPowerCut.
//   - Builds that do not know encryption refuse it; without a key it is ErrEncrypted.
//   - Opening decrypts every value. A missing key (envelope.ErrNoKey, ErrWrongKey) changes nothing: TestAnEncryptedFileNeedsItsKey. A
//     changed or moved value is ErrDamaged: TestADamagedEntryIsFound.
//   - Rotation encrypts entries anew, with callers' commits. In a file revisions stay, so no condition fails:
//     TestRotationRewritesEveryEntry. Free pages may keep old versions; Rewrite leaves none. In etcd each entry gets a new revision.
//   - A process that lacks the key of what another one wrote to etcd cannot read it, nor follow what comes after it: Watch returns
//     envelope.ErrNoKey. So every replica has a new key before one encrypts with it.
package store
