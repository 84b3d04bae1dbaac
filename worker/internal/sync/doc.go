// SPDX-License-Identifier: Apache-2.0

// Package sync shows other clusters' segments in the status of the local Envs.
//
// In: the hub's messages about other clusters, its connection, and Envs. Out: server-side applies of status by the field manager
// atoll-sync, under its own ServiceAccount, for people and tools; Atoll decides nothing by it. It keeps I3 and I5.
//
//	syncer.go
//	apply.go
//	budget.go   which Env is next (pure)
//	decide.go   what an Env shows (pure)
//	gaps.go     clusters that an Env names and that do not serve it (pure)
//	differences.go  where spec.clusters is not what the owners have (pure)
//	entry.go    one segment in the status
//	foreign.go  the hub's messages
//
// # Rules
//
//   - I3: a local segment is never written: newEntry refuses the local ClusterID, and encode again: TestI3EncodeRefusesTheLocalSegment.
//   - I5: every apply has all foreign segments, unknown ones carried over; because it removes what it leaves out. A segment goes only by an
//     explicit removal, or if the hub knows its cluster: TestI5ForeignSegmentsGoOnlyWhenTheyAreKnownToBeGone.
//   - I14: an invalid part of a message (names, texts, size) alone is dropped, counted and logged: TestWhatCannotBeUsedIsDroppedAlone.
//
// # Writes
//
//   - The body is raw JSON with metadata.uid; because it must contain isLocal=false.
//   - An apply to a deleted Env fails: TestApplyToADeletedEnvCreatesNone. A new Env of its name is corrected at its next event.
//   - Beyond 128 KiB a segment's members collapse into a total per scaling group, then into one; Federated says TooLarge:
//     TestTooLargeCollapses.
//   - Times (lastSnapshotTime) cause no write.
//   - An Env is written every 3 s at most, a cluster 5 times and 200 KB a second: TestBudgetHoldsOneEnvToAWriteEveryThreeSeconds,
//     TestBudgetHoldsTheClusterToFiveWritesASecond, TestBudgetHoldsTheClusterTo200KilobytesASecond.
//   - ClusterMissing and EnvMissing are shown after 15 s, too; because a cluster that joins passes through them: TestGaps,
//     TestSyncSaysWhichClustersDoNotServe. Of a hub that does not list its clusters nothing is said.
//   - Other clusters' segments in spec stay as applied (I3); status has what their owners have, and Federated's message where they differ:
//     TestDifferences, TestSyncShowsTheOwnersSpec.
//   - HubUnreachable is shown after 15 s; because a hub's restart must not cost writes.
package sync
