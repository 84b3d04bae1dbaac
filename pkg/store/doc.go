// SPDX-License-Identifier: Apache-2.0

// Package store is the one home of durable state outside of Kubernetes: a transactional key-value store with revisions. It
// holds what a hub keeps, and a worker's history of ended sandboxes.
//
// In go transactions (conditions, puts, deletes); out comes a revision once they are on disk. An acknowledged transaction
// survives kill -9 and power loss; one that answers ErrConflict changed nothing; any other error means that its outcome is
// unknown to the caller, who has to read before deciding again (I2 rests on this).
//
// The embedded implementation is one bbolt file for one process. It does not use bbolt's own Batch: that makes a lone
// writer wait for company (10 ms by default). The committer here starts at once when it is idle and takes along whatever
// arrives while the disk is busy, so a lone write costs one fsync pair and a crowd shares one. Writes that nobody waits for
// say so (Lazy), and ride along with those that somebody does.
//
// # What happens to files
//
// A new file appears under its name when it is complete. An existing one is read from end to end when it is opened, free
// pages included, and is refused if anything in it is not what was written (ErrDamaged), if a newer build wrote it
// (ErrNewer) or another process has it (ErrLocked). One of an older schema is migrated, in one transaction. Damage that is
// met later ends the store, not the process. A full disk fails what is being written, changes nothing, and is over when
// there is room again.
//
// Memory is the same without a file, for those who have no place for one.
//
// Watch is absent: with one replica the process that writes is the process that reads.
//
// Package storetest holds the conformance suite that every implementation passes.
package store
