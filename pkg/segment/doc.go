// SPDX-License-Identifier: Apache-2.0

// Package segment holds what worker and hub share about segments, the part of a SandboxEnv that belongs to one cluster. It is pure.
//
// In: the segments that an owner sees. Out: a Snapshot of one cluster, the Delta between two, a 64-bit digest that both ends compare, and
// their wire form.
//
//   - A Segment in a Snapshot is immutable; because readers keep it without a lock.
//   - A segment's digest is xxhash over a length-prefixed encoding of its fields, a cluster's the sum of its segments'; because a sum
//     ignores order and is cheap to update.
//   - SaturatedFor counts down: it is in no digest, is no difference, and is sent when something else changes.
//   - Equal Defaults, Shapes and keys are stored once, a single member without a slice; because a hub holds a segment for every Env and
//     cluster.
//   - Wire input is bounded (bounds.go); because what is kept must fit into a frame to any peer (I14).
//   - Equal digests mean equal views (I4). Order decides which report is older; only a Delta's Removed deletes (I5).
package segment
