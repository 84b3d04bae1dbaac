// SPDX-License-Identifier: Apache-2.0

// Package fleet is the hub's merged view of all clusters.
//
// In go the frames of attached workers, one Session a stream; out come, for the router, an immutable View of every Env
// that is read without a lock; for the other workers, the segments they don't own; for the API, clusters and Envs.
//
// Layout of the data: a part is what one cluster has of one Env. A cluster holds its parts, with a digest of them all, a slot
// the parts of one Env, so that a report is looked up once. It changes parts under their cluster's lock and each slot's,
// where a new View replaces the old one behind an atomic pointer. Health is a word that views refer to, so that a cluster
// going silent needs no new view. No lock is held while anything blocks, and none is shared by clusters but the slots', for
// as long as it takes to build one view (I7). Reports of many Envs take turns for the processors: a turn is milliseconds of
// work, waits for nothing and nobody, and leaves claims a processor when all clusters come at once.
//
// The counters of claims in flight live in the views alone, and go from one to the next with their member. What a change is
// noted for in the outboxes of others it is noted for once, until the first of them reads the part.
//
// What a report may do (I4, I5, I12):
//
//   - It belongs to the cluster that the stream's certificate names. No message says otherwise.
//   - It counts in full or not at all: chunks are collected, and a gap discards them and asks for a complete report.
//   - It counts once and in order: (incarnation, sequence) must be higher than that of the last report that counted. The
//     incarnation is durable before the first report of it counts, so a restart of the hub does not forget the order.
//   - A stream's first report must be complete; deltas before it are not applied.
//   - Only a removal in a delta, or a complete report, removes. A complete report that leaves out more than 30 % of the
//     cluster's Envs, and more than a handful, removes those only when the next complete report leaves them out as well.
//   - A key index counts only with its report, and in full: keys of a report that was refused are not used.
//   - Digests are compared after each report and at each heartbeat; a difference asks for a complete report. A difference
//     that a complete report does not cure (another build's encoding) is asked about ever more rarely, up to 5 min.
//
// What a cluster says costs its own part of the hub, and nothing else (I14):
//
//   - Every name is a DNS name, every text is bounded, and a segment has 64 KiB at most (package segment). A segment that is not
//     within these bounds is left out, and its Env is there without members: TestI14AnInvalidSegmentCostsItsOwnEnvAlone.
//   - A cluster has a budget of Envs, members, keys and bytes (Limits). What is over it is left out:
//     TestI14AClusterOverItsLimitIsDegradedAlone. A report that arrives counts against the bytes from its first chunk on:
//     TestI14AnUnfinishedReportIsKeptWithinItsBudget.
//   - The cluster is degraded then, until a complete report counts in full, and its state says why. It is asked for complete
//     reports ever more rarely.
//   - A new incarnation is a write to the registry that all share, and comes at a bounded rate:
//     TestI14ANewTermIsNotWrittenDownWithoutEnd.
//   - What is passed on to others is cut into frames by its size: TestI14WhatAClusterSaysEndsNoOtherStream of package attach.
//
// Because older reports are dropped as a whole, a removed Env cannot come back by a late report. Its tombstone is kept for
// the Welcome, bounded by number, and bars nothing: a newer report that names the Env is the owner's word.
//
// Identity: the first cluster that connects under a name binds the name to its kube-system uid, durably. Another uid is
// refused, and as often as it comes, it does not touch the cluster that has the name. Two clusters with the same uid (a
// copied etcd) are told apart by their terms only: when terms alternate three times within a minute, or one that was replaced
// comes three times while the other is well, both are quarantined, for 5 min after the last time that both came. A worker
// that restarts has a new term each time and never alternates; a leader that was replaced is gone within its lease.
//
// A lower resourceVersion than remembered means that the cluster's etcd was set back. It is looked for in the hello, and at
// each heartbeat that was not overtaken; what is remembered stays until a term that was told so begins.
//
// Lifecycle of a name: free, registered, draining, forgotten. Draining is durable and changes routing alone: reports,
// liveness and the keys that the cluster holds go on. Forgetting writes a tombstone first, and waits for that and for
// nothing else, least of all for the cluster; then the stream ends and the segments leave every view. Workers that were away hear of it as well: a name
// whose cluster was forgotten is listed as known, with nothing. Forgetting revokes (TestForgettingRevokesTheCertificatesKey): the name is refused whatever
// uid comes, and so are the keys of the cluster's certificates under every name, until an operator takes that back, or gives the
// name to another cluster. A cluster that is attached and takes
// claims cannot be forgotten. A name that is bound, taken or given back is written down by package registrycopy first.
//
// Liveness is decided by decideHealth, on the hub's monotonic clock. A stream that ends makes its cluster the last choice at
// once, because a dispatch cannot reach it, and unreachable after the same silence as any other; it never removes anything
// (I6). A missing receipt makes a cluster the last choice until a receipt arrives, or for 10 s.
//
// The rules of the link and the tests that hold them; those that are a worker's are in its package agent:
//
//  1. identity                 TestI12AnotherClusterUnderATakenNameIsRefused, TestI12AReportBelongsToTheClusterOfItsCertificate,
//     TestTwoThatAlternateAreBothQuarantined, TestACrashLoopIsNoQuarantine
//  2. incarnation, etcd        TestIncarnation, TestDecideFloor, TestI5ARestartedHubBelievesNoOlderIncarnation, TestEtcdRestored,
//     TestEtcdRestoredUnderAStream, TestI1IdlePodsAreReplacedAfterEtcdWasRestored
//  3. complete reports first   TestAStreamStartsWithACompleteReport, TestDivergenceIsFoundByDigest,
//     TestTombstonesTravelInTheWelcomeAndAreBounded
//  4. absence is not deletion  TestI5NoReportThatIsMissingPartialLateRepeatedOrOutOfOrderDeletes, TestI5AMassRemovalNeedsTwoCompleteReports
//  5. liveness                 TestLiveness, TestI5NeitherSilenceNorDisconnectDeletes, TestStaleClustersAreNotRoutedTo
//  6. durations                TestI11AStepOfTheWallClockChangesNoLiveness
//  7. no event queue           TestI10WhatAReceiverIsOwedIsBoundedByItsEnvs, TestEdge, TestCredit, TestReportsAreCutIntoChunks
//  8. isolation                TestI7AStuckClusterDelaysNoOther, and TestI7AStalledStreamDelaysNobodyElse of package attach
//  9. removal                  TestADrainingClusterGetsNoNewClaims, TestI4AForgottenClusterLeavesEveryView,
//     TestAForgottenClusterIsRefused, TestASuccessorIsNotMeasuredByTheOneBefore
//  10. stale sessions          TestADispatchedClaim, and TestAStaleSessionIsAskedOnceMore of package claims
//
// Departures from the design's mechanisms: foreign segments go only to clusters that have the Env themselves, since the
// others have no object to write them to; a complete Foreign may come again later, for a cluster that became known. What a
// stream is told of others begins up to three seconds later while first reports of other clusters are on their way, and changes
// that nobody acts upon (see segment.Edge) are told once a second.
package fleet
