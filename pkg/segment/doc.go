// SPDX-License-Identifier: Apache-2.0

// Package segment is what worker and hub both know about segments: the part of a SandboxEnv that belongs to one cluster.
// It is pure: no clock, no network, no client.
//
// In go the segments that an owner sees; out come a Snapshot of one whole cluster, the Delta between two snapshots, the
// 64-bit digest that both ends compare, and the wire form of all of them. A Segment is immutable from the moment it is
// put into a Snapshot, so that readers may keep it without a lock.
//
// The digest of a segment is xxhash over a length-prefixed encoding of its fields; that of a cluster is the sum of its
// segments' digests, so that it does not depend on order and is kept up to date by one subtraction and one addition.
// What counts down by itself (SaturatedFor) is in no digest and makes no difference between two segments: it travels
// when something else changed.
//
// A hub holds a segment for every Env and cluster. What many have in common (Defaults, Shape) is there once for all of them,
// an Env's key once for its segments, a uid takes 16 bytes, and the most frequent number of members, one, needs no slice.
//
// What is read from the wire is bounded (bounds.go), and refused with the field, its value cut short, and what is valid, so that
// whatever is kept here fits into a frame to anybody else (I14).
//
// It serves I4 (equal digests mean equal views) and I5: Order says which of two reports is older, and nothing in this
// package deletes but a Delta's explicit Removed.
package segment
