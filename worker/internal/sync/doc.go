// SPDX-License-Identifier: Apache-2.0

// Package sync shows other clusters' segments in the status of the local Envs.
//
// In: the hub's messages about other clusters, its connection, and Envs. Out: server-side applies of status by the field manager
// atoll-sync, under its own ServiceAccount, for people and tools; no decision of Atoll depends on them. It keeps I3 and I5.
//
//	syncer.go
//	apply.go
//	budget.go   which Env is next (pure)
//	decide.go   what an Env shows (pure)
//	gaps.go     clusters that an Env names but that do not serve it (pure)
//	differences.go  where spec.clusters differs from the owners' specs (pure)
//	entry.go    one segment in the status
//	foreign.go  the hub's messages
//
// # Rules
//
//   - I3: a local segment is never written: newEntry and encode both refuse the local ClusterID: TestI3EncodeRefusesTheLocalSegment.
//   - I5: every apply has all foreign segments, unknown ones carried over; because it removes what it leaves out. A segment is removed only
//     by an explicit removal, or if the hub knows its cluster: TestI5ForeignSegmentsGoOnlyWhenTheyAreKnownToBeGone.
//   - I14: only the invalid part of a message (names, texts, size) is dropped, counted and logged: TestWhatCannotBeUsedIsDroppedAlone.
//
// # Writes
//
//   - The body is raw JSON with metadata.uid; because it must contain isLocal=false.
//   - An apply to a deleted Env fails: TestApplyToADeletedEnvCreatesNone. A new Env of its name is corrected at its next event.
//   - Beyond 128 KiB a segment's members collapse into a total per scaling group, then into one; Federated says TooLarge:
//     TestTooLargeCollapses.
//   - Times (lastSnapshotTime) cause no write.
//   - An Env is written at most every 3 s, and a cluster gets at most 5 writes and 200 KB a second:
//     TestBudgetHoldsOneEnvToAWriteEveryThreeSeconds, TestBudgetHoldsTheClusterToFiveWritesASecond,
//     TestBudgetHoldsTheClusterTo200KilobytesASecond.
//   - ClusterMissing and EnvMissing are also shown only after 15 s; because a cluster that joins passes through them: TestGaps,
//     TestSyncSaysWhichClustersDoNotServe. If the hub does not list its clusters, neither is shown.
//   - Other clusters' segments in spec stay as applied (I3). The status shows the owners' segments, and Federated's message names the
//     differences: TestDifferences, TestSyncShowsTheOwnersSpec.
//   - HubUnreachable is shown after 15 s; because a hub's restart must not cost writes.
package sync
