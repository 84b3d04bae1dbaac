// SPDX-License-Identifier: Apache-2.0

// Package store is the one home of durable state outside of Kubernetes: a transactional key-value store with revisions. It holds
// the hub's state, and a worker's history of ended sandboxes.
//
// In go transactions (conditions, puts, deletes); out comes a revision once they are on disk.
//
//   - An acknowledged transaction survives kill -9 and power loss.
//   - A transaction that returns ErrConflict changed nothing.
//   - After any other error the outcome is unknown, and the caller must read before it decides again (I2 relies on this).
//
// The embedded implementation is one bbolt file for one process. It does not use bbolt's own Batch; because that delays a lone
// writer (10 ms by default). The committer starts at once when it is idle and batches what arrives while the disk is busy: a lone
// write costs one fsync pair, and concurrent writes share one. Writes without a waiting caller are Lazy, and are committed with
// the next write that has one.
//
// # Files
//
//   - A new file appears under its name when it is complete.
//   - An existing file is read from end to end when it is opened, free pages included. It is refused if its content is not what
//     was written (ErrDamaged), if a newer build wrote it (ErrNewer) or if another process has it (ErrLocked).
//   - A file of an older schema is migrated, in one transaction.
//   - Damage that is found later ends the store, not the process.
//   - A full disk fails the write, changes nothing, and writes succeed again when there is room.
//
// # Encryption
//
// A file that is opened with a Sealer (package envelope) has encrypted values; keys of entries, lengths and revisions are in clear,
// and empty values stay empty.
//
//   - A file is encrypted as a whole or not at all. A plain file is copied to a new one when it is first opened with a Sealer, so
//     that its free pages tell nothing either: TestAPlainFileIsEncrypted. A crash leaves one of the two:
//     TestEncryptingSurvivesAPowerCut.
//   - Its kind in the file says so. A build that does not know encryption refuses it; without a key it is ErrEncrypted.
//   - Every value is decrypted when the file is opened. A missing key (envelope.ErrNoKey, ErrWrongKey) changes nothing:
//     TestAnEncryptedFileNeedsItsKey. A value that was changed or moved is ErrDamaged: TestADamagedEntryIsFound.
//   - Rotation encrypts entries anew, in batches, each in one commit with what callers write. Revisions stay, so no condition of a
//     caller fails by it: TestRotationRewritesEveryEntry. Free pages may keep old versions; Rewrite leaves none.
//
// Memory is the same store without a file.
//
// There is no Watch; because with one replica the process that writes is the process that reads.
//
// Package storetest holds the conformance suite that every implementation passes.
package store
