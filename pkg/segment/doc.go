// SPDX-License-Identifier: Apache-2.0

// Package segment is shared by worker and hub. It defines segments: the part of a SandboxEnv that belongs to one cluster. It is pure.
//
// In: the segments that an owner sees. Out: a Snapshot of one cluster, the Delta between two snapshots, a 64-bit digest that both ends
// compare, and the wire format of all of them.
//
//   - A Segment in a Snapshot is immutable; because readers keep it without a lock. Neither Update nor a Snapshot changes one:
//     TestUpdateIsFromProto, TestSnapshotsChangeNoSegment.
//   - The digest of a segment is the xxhash of a length-prefixed encoding of its fields: TestDigestSeesEveryField, TestDigestGolden. Fields
//     that older hubs drop are not in it; because these hubs would request complete reports without end:
//     TestDigestIgnoresWhatOlderHubsDrop.
//   - The digest of a cluster is the sum of its segments' digests; because a sum does not depend on the order and is cheap to update:
//     TestSnapshotDigestIsThatOfItsContent, FuzzReports.
//   - SaturatedFor counts down. It is in no digest, is not a difference, and is only sent together with another change:
//     TestDigestIgnoresWhatCountsDown, TestPutReportsChanges.
//   - Equal Defaults and Shapes are stored once, and so is the key of segments that were made from one another (Update, Bare). A canonical
//     uid is stored in its short form (TestUIDIsKeptAsItWasGiven), and a single member without a slice; because a hub holds a segment for
//     every Env and cluster: TestEqualPartsAreStoredOnce.
//   - Wire input is bounded (bounds.go); because what is stored must fit into a frame to any peer (I14): TestFromProtoRefuses,
//     TestBoundsOfTexts, TestBoundsOfSegments, TestSizeIsNoLessThanTheWire.
//   - Equal digests mean equal views (I4): TestDiffIsWhatApplyNeeds, FuzzReports. Order decides which report is older: TestOrder. Only a
//     Delta's Removed deletes (I5): TestDiffIsWhatApplyNeeds.
package segment
