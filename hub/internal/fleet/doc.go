// SPDX-License-Identifier: Apache-2.0

// Package fleet is the hub's merged view of all clusters.
//
// In go the frames of attached workers, one Session per stream. Out come, for the router, an immutable View of every Env, which
// is read without a lock; for other workers, the segments that they do not own; for the API, clusters and Envs.
//
// # Data and locks (I7)
//
//   - A part is one cluster's share of one Env. A cluster holds its parts and a digest of them all; a slot holds the parts of one
//     Env, so that a report needs one lookup.
//   - Parts change under the lock of their cluster and of each slot. A new View then replaces the old one behind an atomic
//     pointer.
//   - Health is one word that views refer to; because a cluster that becomes silent must not need new views.
//   - No lock is held while anything blocks. Clusters share only the slots' locks, for as long as it takes to build one view.
//   - Reports of many Envs take turns for the processors. A turn is milliseconds of work, never blocks, and leaves one processor
//     to claims when all clusters report at once.
//   - The counters of claims in flight live in the views only. Each new view takes them over with its members.
//   - A changed part is noted once in the outboxes of others, until the first of them reads it.
//
// # Reports (I4, I5, I12)
//
//   - A report belongs to the cluster in the stream's certificate. No message has a field for it.
//   - A report counts in full or not at all: chunks are collected, and a gap discards them and requests a complete report.
//   - A report counts once and in order: its (incarnation, sequence) must exceed that of the last report that counted. An
//     incarnation is durable before its first report counts; because a restarted hub must keep the order.
//   - A stream's first report must be complete; earlier deltas are not applied.
//   - Only a removal in a delta, or a complete report, removes an Env. If a complete report omits more than 30 % of the cluster's
//     Envs, and more than a handful, they are removed only when the next complete report omits them as well.
//   - A key index counts only with its report, and in full: keys of a refused report are not used.
//   - Digests are compared after each report and at each heartbeat; a difference requests a complete report. If a complete report
//     does not cure the difference (another build's encoding), the hub backs off, up to 5 min.
//   - A late report cannot bring back a removed Env; because older reports are dropped as a whole. Tombstones are kept for the
//     Welcome, bounded by number, and block nothing: a newer report that names the Env wins.
//
// # Bounds: a cluster's input costs only its own part of the hub (I14)
//
//   - Every name is a DNS name, every text is bounded, and a segment has 64 KiB at most (package segment). A segment outside
//     these bounds is left out, and its Env has no members of this cluster: TestI14AnInvalidSegmentCostsItsOwnEnvAlone.
//   - A cluster has a budget of Envs, members, keys and bytes (Limits). The excess is left out:
//     TestI14AClusterOverItsLimitIsDegradedAlone. An arriving report counts against the bytes from its first chunk on:
//     TestI14AnUnfinishedReportIsKeptWithinItsBudget.
//   - Such a cluster is degraded, and its state shows why, until a complete report counts in full. The hub requests complete
//     reports with back-off.
//   - A new incarnation is a write to the shared registry, and is rate-limited: TestI14ANewTermIsNotWrittenDownWithoutEnd.
//   - Segments for other workers are cut into frames by size: TestI14WhatAClusterSaysEndsNoOtherStream of package attach.
//
// # Identity
//
//   - The first cluster that connects under a name durably binds the name to its kube-system uid. Another uid is refused, however
//     often it comes, and does not affect the bound cluster.
//   - Only their terms distinguish two clusters with the same uid (a copied etcd). Both are quarantined when terms alternate
//     three times within a minute, or when a replaced term returns three times while the other is healthy; until 5 min after both
//     were last seen. A restarting worker has a new term each time and never alternates; a replaced leader exits within its
//     lease.
//   - A resourceVersion below the remembered one means that the cluster's etcd was restored. The hub checks the Hello and each
//     heartbeat that was not overtaken. The remembered value stays until a term begins whose worker got this report.
//
// # Lifecycle of a name: free, registered, draining, forgotten
//
//   - Draining is durable and changes routing only: reports, liveness and the cluster's keys continue.
//   - Forgetting writes a tombstone, and waits for that write only, never for the cluster. Then the stream ends and the segments
//     leave every view. Workers that were away learn of it too: the Welcome lists a forgotten name as known, without segments.
//   - Forgetting revokes: the name is refused for every uid, and the keys of the cluster's certificates under every name, until
//     an operator reverts that or gives the name to another cluster: TestForgettingRevokesTheCertificatesKey.
//   - A cluster that is attached and takes claims cannot be forgotten.
//   - Package registrycopy records the binding, taking or return of a name before the registry does.
//
// # Liveness (I6, I11)
//
//   - decideHealth decides liveness, on the hub's monotonic clock.
//   - When a stream ends, its cluster becomes the last choice at once; because a dispatch cannot reach it. It becomes unreachable
//     after the same silence as any other cluster. Neither removes anything (I6).
//   - A missing receipt makes a cluster the last choice until a receipt arrives, or for 10 s.
//
// # Rules of the link and their tests
//
// The worker's rules are in its package agent.
//
//  1. identity                 TestI12AnotherClusterUnderATakenNameIsRefused, TestI12AReportBelongsToTheClusterOfItsCertificate,
//     TestTwoThatAlternateAreBothQuarantined, TestACrashLoopIsNoQuarantine
//  2. incarnation, etcd        TestIncarnation, TestDecideFloor, TestI5ARestartedHubBelievesNoOlderIncarnation, TestEtcdRestored,
//     TestEtcdRestoredUnderAStream, TestI1IdlePodsAreReplacedAfterEtcdWasRestored
//  3. complete reports first   TestAStreamStartsWithACompleteReport, TestDivergenceIsFoundByDigest,
//     TestTombstonesTravelInTheWelcomeAndAreBounded
//  4. absence is not deletion  TestI5NoReportThatIsMissingPartialLateRepeatedOrOutOfOrderDeletes,
//     TestI5AMassRemovalNeedsTwoCompleteReports
//  5. liveness                 TestLiveness, TestI5NeitherSilenceNorDisconnectDeletes, TestStaleClustersAreNotRoutedTo
//  6. durations                TestI11AStepOfTheWallClockChangesNoLiveness
//  7. no event queue           TestI10WhatAReceiverIsOwedIsBoundedByItsEnvs, TestEdge, TestCredit, TestReportsAreCutIntoChunks
//  8. isolation                TestI7AStuckClusterDelaysNoOther, and TestI7AStalledStreamDelaysNoOther of package attach
//  9. removal                  TestADrainingClusterGetsNoNewClaims, TestI4AForgottenClusterLeavesEveryView,
//     TestAForgottenClusterIsRefused, TestASuccessorIsNotMeasuredByTheOneBefore
//  10. stale sessions          TestADispatchedClaim, and TestAStaleSessionIsAskedOnceMore of package claims
//
// # What differs from the design
//
//   - Foreign segments go only to clusters that have the Env; because other clusters have no object to write them to. A complete
//     Foreign may be sent again, when another cluster becomes known.
//   - A stream's foreign segments start up to three seconds late while first reports of other clusters are arriving.
//   - Changes that trigger no action (see segment.Edge) are sent once a second.
package fleet
