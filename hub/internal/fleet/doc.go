// SPDX-License-Identifier: Apache-2.0

// Package fleet is the hub's merged view of all clusters.
//
// In: the frames of attached workers, one Session a stream. Out: for the router, an immutable View of every Env, read without a
// lock; for other workers, the segments that they do not own; for the API, clusters and Envs.
//
// # Data and locks (I7)
//
//   - A part is one cluster's share of one Env. A cluster holds its parts and their digest; a slot holds the parts of one Env.
//   - Parts change under the locks of their cluster and slot; then an atomic pointer gets a new View.
//   - Health is one word that views refer to; because a cluster that becomes silent must not need new views.
//   - No lock is held while anything blocks. Clusters share only slots' locks, for as long as it takes to build a view.
//   - Reports of many Envs take turns of milliseconds, and leave one processor to claims.
//   - Counters of claims in flight are in the views; a new view takes them over.
//   - A changed part is noted once in the outboxes of others, until the first of them reads it.
//
// # Reports (I4, I5, I12)
//
//   - A report belongs to the cluster in the stream's certificate. No message has a field for it.
//   - It counts in full or not at all: a gap in its chunks discards them and requests a complete report.
//   - It counts once and in order of (incarnation, sequence). An incarnation is durable before its first report counts; because a
//     restarted hub must keep the order.
//   - A stream's first report is complete; earlier deltas are not applied.
//   - Only a removal in a delta, or a complete report, removes an Env. A complete report that omits more than 30 % of the Envs, and
//     more than a handful, removes them only if the next one omits them as well.
//   - A key index counts only with its report, and in full.
//   - Digests are compared after each report and heartbeat; a difference requests a complete report, with back-off up to 5 min if
//     that does not cure it (another build's encoding).
//   - A late report brings nothing back; because older reports are dropped whole. Tombstones are for the Welcome, bounded by
//     number, and a newer report that names the Env wins.
//
// # Bounds: a cluster's input costs its own part of the hub (I14)
//
//   - A segment outside the bounds of package segment is left out: TestI14AnInvalidSegmentCostsItsOwnEnvAlone.
//   - A cluster has a budget of Envs, members, keys and bytes (Limits), from a report's first chunk on. The excess is left out:
//     TestI14AClusterOverItsLimitIsDegradedAlone, TestI14AnUnfinishedReportIsKeptWithinItsBudget.
//   - Such a cluster is degraded, and says why, until a complete report counts in full. Those are requested with back-off.
//   - A new incarnation is a write to the shared registry, and is rate-limited: TestI14ANewTermIsNotWrittenDownWithoutEnd.
//   - Segments for other workers are cut into frames by size: TestI14WhatAClusterSaysEndsNoOtherStream of package attach.
//
// # Identity
//
//   - The first cluster under a name binds it, durably, to its kube-system uid. Another uid is refused and harms nothing.
//   - Two clusters with one uid (a copied etcd) differ by their terms only. Both are quarantined, until 5 min after both were seen,
//     when terms alternate three times within a minute, or a replaced term returns three times while the other is healthy. A
//     restarting worker has a new term each time, and a replaced leader exits within its lease.
//     A release that the copy confirmed before that ended the copy's sandbox. The claim ledger ends the other one when its cluster
//     returns, if it has a key; one without a key runs until its shutdown time, or until a caller releases it again.
//   - A resourceVersion below the remembered one, in the Hello or a heartbeat that was not overtaken, means a restored etcd. It is
//     remembered until a term begins whose worker was told.
//
// # Lifecycle of a name: free, registered, draining, forgotten
//
//   - Draining is durable and changes routing only.
//   - Forgetting waits for the write of a tombstone, and never for the cluster. Then the stream ends and the segments leave every
//     view; workers that were away learn it from the Welcome, which lists the name without segments.
//   - Forgetting revokes the name for every uid, and the keys of the cluster's certificates under every name, until an operator
//     reverts it: TestForgettingRevokesTheCertificatesKey.
//   - A cluster that is attached and takes claims cannot be forgotten.
//   - Package registrycopy records the binding, taking or return of a name before the registry does.
//
// # Liveness (I6, I11)
//
//   - decideHealth decides, on the hub's monotonic clock.
//   - A cluster whose stream ends is the last choice at once, and unreachable after the usual silence. Neither removes anything.
//   - A missing receipt makes a cluster the last choice until one arrives, or for 10 s.
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
//   - Foreign segments go only to clusters that have the Env; because others have no object for them. A complete Foreign is sent
//     again when another cluster becomes known.
//   - A stream's foreign segments start up to three seconds late while first reports of other clusters arrive.
//   - Changes that trigger no action (see segment.Edge) are sent once a second.
package fleet
