// SPDX-License-Identifier: Apache-2.0

// Package fleet is the hub's merged view of all clusters.
//
// In: frames of workers, through one Session for each stream. Out: Views of Envs, which callers read without a lock; foreign segments; the
// clusters and Envs of the API.
//
// # Data and locks (I7, I10)
//
//   - A part is one cluster's share of one Env. A cluster holds all its parts and their digest. A slot holds all parts of one Env.
//   - A writer changes a part with the locks of its cluster and its slot held, then stores a new View in an atomic pointer. The new View
//     keeps the counters of claims in flight. Views refer to the cluster's health, so a silent cluster needs no new Views.
//   - The fleet holds no lock while it blocks, and clusters share only the locks of slots: TestI7AStuckClusterDelaysNoOther,
//     TestI7AStalledStreamDelaysNoOther of package attach.
//   - A large report takes a slot for some milliseconds. There is one slot less than processors, which leaves one to claims.
//   - A changed part is noted once in the outbox of each other cluster. There is no event queue:
//     TestI10AnOutboxIsBoundedByItsEnvs, TestEdge, TestCredit.
//
// # Reports (I4, I5, I12)
//
//   - A report belongs to the cluster that the certificate names: TestI12AReportBelongsToTheClusterOfItsCertificate.
//   - A report counts in full, including its key index, or not at all. If a chunk is missing, the hub requests a complete report:
//     TestReportsAreCutIntoChunks.
//   - A report counts once. Reports are ordered by (incarnation, sequence):
//     TestI5NoReportThatIsMissingPartialLateRepeatedOrOutOfOrderDeletes.
//   - An incarnation is durable before its reports count; because a restarted hub must keep the order: TestIncarnation,
//     TestI5ARestartedHubBelievesNoOlderIncarnation.
//   - A stream starts with a complete report, and the hub drops deltas that arrive before it: TestAStreamStartsWithACompleteReport. A
//     stream may start with deltas at a replica that has the view of the worker's last acknowledged report of this term, compared by
//     sequence and digest. The first of these deltas carries the whole key index: TestAStreamMayStartWithDeltas, TestDeltasAfterAReattach,
//     TestI1NoDeltasAfterARestoredEtcd.
//   - Only an explicit removal in a delta, or a complete report, removes Envs. A complete report that omits over 30 % of the Envs, and more
//     than a handful, removes them only when a second one omits them too: TestI5AMassRemovalNeedsTwoCompleteReports.
//   - If digests differ after a report or a heartbeat, the hub requests a complete report, with back-off: TestDivergenceIsFoundByDigest.
//   - The Welcome carries the tombstones of removed Envs. A newer report of an Env deletes its tombstone:
//     TestTombstonesTravelInTheWelcomeAndAreBounded.
//
// # Several replicas
//
//   - A Relay sends a peer the state of the clusters that are attached to this replica: incarnation, stream, sequence, digest, changes and
//     heartbeats. An Inlet feeds the frames of a peer into relayed sessions, which follow the same rules of reports and liveness:
//     TestARelayedViewEqualsTheOwners, TestRelayedHeartbeatsKeepAClusterFresh.
//   - The session with the highest (incarnation, stream) represents the cluster, whichever replica holds it:
//     TestTheHighestStreamHasTheCluster, TestI4ViewsAgreeWhereverAWorkerIsAttached.
//   - Replicas with equal views (sequence, digest) exchange only deltas. Otherwise a replica requests a complete report, which the peer
//     makes from its view.
//   - When a relay breaks, its clusters become the last choice and nothing is removed: TestI5ABrokenRelayLeavesTheParts,
//     TestI5ARelayedMassRemovalNeedsTwoCompleteReports.
//   - Where few idle Pods are left, peers tell each other of their claims in flight, so that two replicas choose different Pods:
//     TestTwoReplicasChooseDifferentLastPods. These messages are hints: a wrong one costs an extra hop: TestPoisonedHintsCostAHop. A
//     member's Claiming counts the claims of all replicas. It hides a replica's own claims while the peers' are in flight, which costs an
//     extra hop as well.
//   - A relay keeps one line for each cluster. A peer that falls behind gets a complete report instead of the deltas:
//     TestI10APeerThatReadsSlowlyIsOwedACompleteReport.
//   - Peers tell each other of hellos that arrive while another stream is healthy; because two clusters with one identity may connect to
//     different replicas: TestACopyIsFoundByContactsWithAllReplicas, TestI10ContactsThatAPeerDoesNotReadAreBounded.
//   - A worker gets foreign segments from the replica to which it is attached. Only that replica uses the cluster's key index and writes
//     its record: TestRelayedSessionsGetNoForeignSegments.
//   - Frames of peers have the same bounds as frames of workers: TestI14APeersFramesAreBounded. A replica accepts no forgotten cluster from
//     a peer: TestI4AForgottenClusterIsNotRelayed.
//
// # A cluster's input costs its own part of the hub (I14)
//
//   - The hub drops a segment that exceeds the bounds of package segment: TestI14AnInvalidSegmentCostsItsOwnEnvAlone.
//   - The hub also drops the part of a report that exceeds Limits, from the first chunk on. The cluster is degraded, with a reason, until a
//     complete report counts in full. The hub requests that report with back-off: TestI14AClusterOverItsLimitIsDegradedAlone,
//     TestI14AnUnfinishedReportIsKeptWithinItsBudget.
//   - New incarnations are rate-limited; because each one is a write to the registry: TestI14ANewTermIsNotWrittenDownWithoutEnd.
//   - The CAs that a cluster trusts and the issuer of its certificate are saved within a second, because a rotation waits for them. Only
//     the record of that cluster is written: TestI14AnUrgentRecordIsSavedAlone.
//   - Foreign segments are split into frames by size: TestI14WhatAClusterSaysEndsNoOtherStream of package attach.
//
// # Identity (I12)
//
//   - The first cluster that uses a name binds the name durably to the uid of its namespace kube-system. The hub refuses another uid, which
//     has no effect on the registered cluster: TestI12AnotherClusterUnderATakenNameIsRefused.
//   - Two clusters with one uid (a copied etcd) have different terms. The hub quarantines both when terms alternate three times within a
//     minute, or when a replaced term connects three times while another is healthy. The quarantine lasts until 5 min after both were last
//     seen: TestTwoThatAlternateAreBothQuarantined, TestACrashLoopIsNoQuarantine. A hello with a revoked certificate does not count as a
//     contact; because its sender knows the uid: TestI12ARevokedCertificateQuarantinesNoCluster.
//   - If the copy confirmed a release, the ledger ends the other sandbox when its cluster returns. A sandbox without a claim key runs until
//     its shutdown time or another release.
//   - A resourceVersion lower than the recorded one means that etcd was restored. The hub compares those of the Hello and of heartbeats
//     that arrive in order. The state lasts until a term begins whose worker got it in the Welcome: TestDecideFloor, TestEtcdRestored,
//     TestEtcdRestoredUnderAStream, TestI1IdlePodsAreReplacedAfterEtcdWasRestored.
//   - Stale sessions: TestADispatchedClaim, TestAStaleSessionIsAskedOnceMore of package claims.
//
// # Lifecycle of a name: free, registered, draining, forgotten
//
//   - Draining is durable and changes routing only: TestADrainingClusterGetsNoNewClaims.
//   - Forget waits only until the tombstone is written. Then the hub ends the stream and removes the segments from every view. Absent
//     workers get the removal in the Welcome: TestI4AForgottenClusterLeavesEveryView, TestAForgottenClusterIsRefused,
//     TestASuccessorIsNotMeasuredByTheOneBefore.
//   - Forget revokes the name for every uid, and the keys of the cluster's certificates under every name, until an operator reverts it:
//     TestForgettingRevokesTheCertificatesKey.
//   - A revocation refuses the keys in the record, and all certificates issued before it, except those whose keys were issued since;
//     because the record holds only the latest keys: TestRevokingRefusesWhatWasIssuedBefore. The comparison of issue times has a tolerance
//     of ten minutes (I11).
//   - A revocation ends the renewals in flight, at every replica: TestARenewalInFlightEndsWithItsCertificate.
//   - A cluster cannot be forgotten while it is attached and takes claims.
//   - Package registrycopy records a binding before the registry does.
//   - With several replicas a record is written by compare-and-swap. A replica that loses reads the new record and decides again:
//     TestOneNameAtTwoReplicas, TestI4IncarnationsRiseAcrossReplicas, TestAChangeHidesNoLaterOne. Each replica follows the writes of the
//     others: TestI4AForgetAtOneReplicaEndsTheStreamAtAnother, TestAKeyRevokedAtOneReplicaIsRevokedAtAll,
//     TestAReplicaThatWasCutOffCatchesUp.
//
// # Liveness (I6, I11)
//
//   - decideHealth uses the monotonic clock: TestLiveness, TestI11AStepOfTheWallClockChangesNoLiveness.
//   - A cluster without a stream is the last choice at first and unreachable later. Neither state removes anything:
//     TestI5NeitherSilenceNorDisconnectDeletes, TestStaleClustersAreNotRoutedTo.
//   - A cluster that did not confirm a dispatch is the last choice until a receipt arrives, or for 10 s.
//
// # What differs from the design
//
//   - A cluster gets only the foreign segments of Envs that it has. When another cluster becomes known, it gets all segments of that
//     cluster, up to three seconds late while first reports arrive.
//   - The hub sends workers the list of registered clusters, first and after each change, unless the list is too long:
//     TestRegisteredClustersAreSent, TestI14ALongListOfClustersIsNotSent.
//   - The hub sends changes that trigger no action (see segment.Edge) once a second.
package fleet
