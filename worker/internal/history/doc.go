// SPDX-License-Identifier: Apache-2.0

// Package history keeps the terminal records of this cluster's sandboxes.
//
// In goes the record of a sandbox that is over, in the words of the public API; it comes out by id, by claim key and in
// pages, until it is seven days old or 100,000 younger ones are there (both configurable, I10). Whoever hands a record in
// lets the sandbox's Pod, or the identity on it, go only after Keep has answered nil: the record is on the disk then. So a
// worker that is killed at any instruction loses none: what was not kept is on a Pod still, and is handed in again by
// whoever leads next. The first record of a sandbox stands; any other of the same id changes nothing, so none is doubled.
//
// A disk that is full, or fails, fails Keep: the Pod waits, and is handed in again. That costs no running sandbox, and what
// waits is recorded when there is room.
//
// # What is in the store
//
//	record/<sandbox id>   EndedSandbox
//	log/<number>          note: in the order of writing, for retention and for copies
//	out/<number>          the hub has not acknowledged it yet
//	seq                   the highest number, of when the log was last shortened
//
// The store is package store's: one bbolt file below --data-dir, else this process' memory. One goroutine writes, and takes
// along what has come while the disk was busy. Only the notes are in memory, some 200 bytes a record.
//
// # Keys (I2)
//
// A claim key answers the record of its sandbox for 24 h, and longer while the hub has not stored it: until then the hub may
// ask for the key, and must not be given a second sandbox. Ages are differences of the API server's times (I11).
package history
