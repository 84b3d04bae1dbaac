// SPDX-License-Identifier: Apache-2.0

// Package history keeps the terminal records of this cluster's sandboxes.
//
// In: records of ended sandboxes, as in the public API. Out: records by id, by claim key and in pages. By default a record is kept for
// seven days, or until there are 100,000 newer ones (I10).
//
//	history.go  records by id and by key, and those that the hub lacks
//	writer.go   writes in batches, and the sweep
//	query.go    pages of records
//	peers.go    which replicas copy from each other
//	session.go  one stream between two replicas
//	copies.go   records that another replica lacks
//	index.go    the notes in memory
//	metrics.go
//
// # Rules
//
//   - Keep returns nil only if the record is on disk; because the caller then removes the sandbox from its Pod:
//     TestKeptRecordsSurviveAPowerCut.
//   - A sandbox's first record stays; later ones change nothing.
//   - While a disk is full or fails, Keep fails and the Pod waits; running sandboxes are not affected:
//     TestAFailedWriteNeitherLosesNorDoubles.
//   - I2: a key returns its record for 24 h (I11), and until the hub has stored it; because the hub may look it up and must not get a
//     second sandbox: TestI2AKeyIsKnownUntilTheHubHasItsRecord.
//
// # Content of the store
//
//	record/<sandbox id>   EndedSandbox
//	log/<number>          note, in order
//	out/<number>          not acknowledged by the hub
//	seq                   the log's highest number when last shortened
//	file                  this file's random name
//	peer/<name>           the position up to which another replica's log was read
//
// Package store keeps it in a bbolt file below --data-dir, else in memory. Only notes are always in memory, 400 bytes each.
//
// # Replicas
//
//   - Each replica's store is lost with its Pod. Followers dial the leader with a certificate of the cluster; without certificates no
//     replica listens: TestCopiesStayInTheCluster.
//   - Two replicas merge their records, each from the position up to which it last read the other's log: TestAReplicaThatWasAwayCatchesUp.
//   - Keep waits for each follower that has all records; because a leader change must lose none: TestNothingIsLostWhateverLeads. A replica
//     is ready when it has them: TestWhenAReplicaIsReady.
//   - Keep does not wait for a follower that is silent for three seconds or whose disk fails, until it has caught up:
//     TestAFollowerThatHangsIsNotWaitedForForEver. Records of a lone replica, or of Pods replaced all at once, can be lost.
//   - Replicas tell each other which records the hub has stored; because a dropped key's record, sent again, looks unknown:
//     TestWhatTheHubHasIsKnownToFollowers.
package history
