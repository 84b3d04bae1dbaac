// SPDX-License-Identifier: Apache-2.0

// Package history keeps the terminal records of this cluster's sandboxes.
//
// In: the record of a sandbox that has ended, in the types of the public API. Out: records by id, by claim key and in pages,
// until they are seven days old or 100,000 younger records exist (both configurable, I10).
//
//   - A caller of Keep removes the sandbox's Pod, or the identity on it, only after Keep has returned nil. Then the record is on
//     the disk. So a worker that is killed at any instruction loses no record: what was not kept is still on a Pod, and the next
//     leader keeps it; held by TestKeptRecordsSurviveAPowerCut.
//   - The first record of a sandbox stands. Another record with the same id changes nothing, so no record is doubled.
//   - A disk that is full or fails makes Keep fail. The Pod waits, and Keep is called again. No running sandbox is affected; held
//     by TestAFailedWriteNeitherLosesNorDoubles.
//
// # What is in the store
//
//	record/<sandbox id>   EndedSandbox
//	log/<number>          note: in the order of writing, for retention and for copies
//	out/<number>          the hub has not acknowledged it yet
//	seq                   the highest number, of when the log was last shortened
//	file                  the random name of this file
//	peer/<name>           up to which number the log of another replica's file was read
//
// Package store keeps it: one bbolt file below --data-dir, else the memory of this process. One goroutine writes, and each write
// includes all that arrived while the disk was busy. Only the notes are in memory, about 400 bytes per record.
//
// # Replicas
//
//   - Each replica of the worker has a store of its own, on a volume that is lost with its Pod. Followers dial the leader, whose
//     address is in the lease. They are let in by a certificate of the same cluster. Without certificates no replica listens;
//     held by TestCopiesStayInTheCluster.
//   - Two replicas merge their records, both ways (session.go). Records never change, so nothing has to be decided. Each
//     remembers how far it has read the other's log; held by TestAReplicaThatWasAwayCatchesUp.
//   - Keep waits for a follower that has all records: it returns when the record is on the follower's disk as well. So a leader
//     change loses nothing; held by TestNothingIsLostWhateverLeads. Nor does the replacement of a Pod while another one has
//     copies: a replica is ready when it has them, see Caught; held by TestWhenAReplicaIsReady.
//   - Keep does not wait for a follower that has not acknowledged for three seconds, or whose disk fails, until it has caught up;
//     held by TestAFollowerThatHangsIsNotWaitedForForEver. With one replica left only the local disk has the record. Then, and
//     when all Pods are replaced at once, the records of that disk can be lost. A record that only a dead leader has is missing
//     until its Pod is back.
//   - Replicas also exchange what the hub has stored, so that the next leader does not send it again: the hub may have dropped
//     the key meanwhile, and would take it for an unknown one; held by TestWhatTheHubHasIsKnownToFollowers.
//
// # Keys (I2)
//
// A claim key returns the record of its sandbox for 24 h, and longer while the hub has not stored it: until then the hub may look
// up the key, and must not get a second sandbox; held by TestI2AKeyIsKnownUntilTheHubHasItsRecord. Ages are differences of the
// API server's times (I11).
package history
