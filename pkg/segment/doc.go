// SPDX-License-Identifier: Apache-2.0

// Package segment holds what worker and hub share about segments: the part of a SandboxEnv that belongs to one cluster. It is
// pure: no clock, no network, no client.
//
// In go the segments that an owner sees. Out come a Snapshot of one whole cluster, the Delta between two snapshots, the 64-bit
// digest that both ends compare, and the wire form of all of them. A Segment is immutable once it is in a Snapshot; because
// readers keep it without a lock.
//
//   - The digest of a segment is xxhash over a length-prefixed encoding of its fields. A cluster's digest is the sum of its
//     segments' digests; because a sum does not depend on order, and one subtraction and one addition update it.
//   - A field that counts down with time (SaturatedFor) is in no digest and is no difference between two segments: it is sent
//     when something else changes.
//   - A hub holds a segment for every Env and cluster. Equal Defaults and Shapes are stored once for all segments, and an Env's
//     key once for its segments. A uid takes 16 bytes, and a single member, the most frequent case, needs no slice.
//   - Wire input is bounded (bounds.go). An error names the field, its value cut short, and what is valid; because what is kept
//     here must fit into a frame to any peer (I14).
//
// It serves I4 (equal digests mean equal views) and I5: Order decides which of two reports is older, and nothing in this package
// deletes except a Delta's explicit Removed.
package segment
