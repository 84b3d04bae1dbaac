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
//	file                  the random name of this file
//	peer/<name>           up to where the log of another replica's file is here
//
// The store is package store's: one bbolt file below --data-dir, else this process' memory. One goroutine writes, and takes
// along what has come while the disk was busy. Only the notes are in memory, some 400 bytes a record.
//
// # Replicas
//
// Every replica of the worker has a store of its own, on a volume that is lost with its Pod. Those that do not lead dial the
// one that does, whose address is in its lease; a certificate of the same cluster is what lets them in, and without
// certificates nobody listens. What two replicas have is united, both ways (session.go): records are never changed, so that
// nothing has to be decided. Each remembers how far it has read the other's log.
//
// A follower that has all is waited for: Keep returns when the record is on its disk as well. So a leader change loses
// nothing, nor does a Pod that is replaced while another one has copies: it is ready when it has them, see Caught. A follower
// that does not acknowledge for three seconds is left behind until it comes back, and so is one whose disk fails: with one
// replica left the local disk is what there is. Then, and when all Pods are replaced at once, what that one disk had can be
// lost; and a record that only a dead leader had is missing until its Pod is back.
//
// What the hub has stored is told as well, so that the next leader does not send it again: a key that the hub has dropped
// meanwhile would be taken for an unknown one.
//
// # Keys (I2)
//
// A claim key answers the record of its sandbox for 24 h, and longer while the hub has not stored it: until then the hub may
// ask for the key, and must not be given a second sandbox. Ages are differences of the API server's times (I11).
package history
