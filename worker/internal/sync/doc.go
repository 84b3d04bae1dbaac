// SPDX-License-Identifier: Apache-2.0

// Package sync shows other clusters' segments in the status of the local Envs.
//
// In: the hub's messages about other clusters, whether a hub is connected, and the Envs of the informer. Out: server-side applies
// of status by the field manager atoll-sync, under its own ServiceAccount. It keeps I3 and I5. No part of Atoll decides by what
// is written here: it is for people, and for tools that read one cluster.
//
//	syncer.go   the loop
//	apply.go    the write
//	budget.go   pure: which Env may be written now, oldest dirty first
//	decide.go   pure: what an Env should show, and whether that takes a write
//	entry.go    one segment as an entry of the status
//	foreign.go  the hub's messages: chunks, deltas, removals
//
// # I3: no local segment is ever written
//
// A segment enters an apply only as an entry, and newEntry refuses the local ClusterID, whether it comes from the hub or from the
// Env's present status. encode refuses it again; held by TestI3EncodeRefusesTheLocalSegment.
//
// # I5: absence is not deletion
//
// An apply removes what it leaves out, so every apply contains all foreign segments of its Env. What this process does not have
// is carried over from the Env's present status. A segment is left out only if its cluster is among those that the hub says it
// knows, or after an explicit removal. So a restart of the worker, or of the hub, removes nothing; held by
// TestI5ForeignSegmentsGoOnlyWhenTheyAreKnownToBeGone.
//
// # I14: invalid messages
//
// The hub's messages are checked on receipt: names, texts, the size of a segment. Only the invalid part is dropped, counted and
// logged. What was received before stays; held by TestWhatCannotBeUsedIsDroppedAlone.
//
// # Writes
//
//   - The body is raw JSON, so that it contains isLocal=false, with metadata.uid.
//   - An apply to a deleted Env fails and does not create it, as every apply to the status subresource does (on the object itself
//     the uid prevents it); held by TestApplyToADeletedEnvCreatesNone. The API server does not compare the uid there, so a write
//     can still reach an Env that was just created under the same name. It is the same federated Env, and its next event makes it
//     dirty again.
//   - Entries have counts and states, no resources. Beyond 128 KiB the members of every segment collapse into one total per
//     scaling group, and if that is too much into one total. Federated then says TooLarge; held by TestTooLargeCollapses.
//   - Times (lastSnapshotTime) cause no write.
//   - An Env is written at most every 3 s, and the cluster takes at most 5 writes and 200 KB a second; held by
//     TestBudgetHoldsOneEnvToAWriteEveryThreeSeconds, TestBudgetHoldsTheClusterToFiveWritesASecond and
//     TestBudgetHoldsTheClusterTo200KilobytesASecond.
//   - HubUnreachable is shown after 15 s only, so that a restart of the hub does not cost two writes per Env.
package sync
