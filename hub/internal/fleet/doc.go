// SPDX-License-Identifier: Apache-2.0

// Package fleet is the hub's merged view of all clusters.
//
// In: workers' frames, one Session a stream. Out: Views of Envs, read without a lock; foreign segments; the API's clusters and Envs.
//
// # Data and locks (I7, I10)
//
//   - A part is one cluster's share of one Env. A cluster holds its parts and their digest, a slot those of one Env.
//   - Parts change under the locks of cluster and slot; then an atomic pointer gets a new View, which takes over counters of claims in
//     flight. Views point to health; so a silent cluster needs no new ones.
//   - No lock is held while anything blocks; clusters share slots' locks only: TestI7AStuckClusterDelaysNoOther,
//     TestI7AStalledStreamDelaysNoOther of package attach.
//   - Large reports take turns of milliseconds, and leave claims a processor.
//   - Others' outboxes note a changed part once; there is no event queue: TestI10WhatAReceiverIsOwedIsBoundedByItsEnvs, TestEdge,
//     TestCredit.
//
// # Reports (I4, I5, I12)
//
//   - The certificate says whose a report is: TestI12AReportBelongsToTheClusterOfItsCertificate.
//   - It counts in full, key index included, or not at all; gaps request a complete one: TestReportsAreCutIntoChunks.
//   - It counts once, in order of (incarnation, sequence): TestI5NoReportThatIsMissingPartialLateRepeatedOrOutOfOrderDeletes.
//   - Incarnations are durable before their reports count; because restarts must keep the order: TestIncarnation,
//     TestI5ARestartedHubBelievesNoOlderIncarnation.
//   - A stream starts with a complete report; earlier deltas are dropped: TestAStreamStartsWithACompleteReport. It may start with deltas at
//     a replica that has the view of the worker's last acknowledged report of this term, by sequence and digest; the first one has the
//     whole key index: TestAStreamMayStartWithDeltas, TestDeltasAfterAReattach, TestI1NoDeltasAfterARestoredEtcd.
//   - Only a delta's removal or a complete report removes Envs; over 30 % of them, and over a handful, take two complete reports:
//     TestI5AMassRemovalNeedsTwoCompleteReports.
//   - A digest that differs after a report or heartbeat requests a complete report, with back-off: TestDivergenceIsFoundByDigest.
//   - Tombstones are for the Welcome; a newer report wins: TestTombstonesTravelInTheWelcomeAndAreBounded.
//
// # Several replicas
//
//   - A Relay sends a peer what counts here of the clusters attached here: incarnation, stream, sequence, digest, changes, heartbeats. An
//     Inlet feeds what a peer sends into relayed sessions, which follow the rules of reports and liveness:
//     TestARelayedViewEqualsTheOwners, TestRelayedHeartbeatsKeepAClusterFresh.
//   - The session with the highest (incarnation, stream) is the cluster's, whichever replica has it: TestTheHighestStreamHasTheCluster,
//     TestI4ViewsAgreeWhereverAWorkerIsAttached.
//   - Equal views (sequence, digest) need deltas alone; otherwise the peer is asked for a complete report, which it makes of its view.
//   - A relay that breaks makes its clusters the last choice, and removes nothing: TestI5ABrokenRelayLeavesTheParts,
//     TestI5ARelayedMassRemovalNeedsTwoCompleteReports.
//   - Peers tell each other of their claims in flight where few idle Pods are left, so that two replicas choose different last Pods:
//     TestTwoReplicasChooseDifferentLastPods. These are hints. A wrong one costs a hop: TestPoisonedHintsCostAHop. A member's claiming
//     counts all replicas' claims, and so hides a replica's own as long as the peers' are under way; that costs a hop as well.
//   - A relay keeps one line for each cluster. A peer that falls behind is owed a complete report:
//     TestI10APeerThatReadsSlowlyIsOwedACompleteReport.
//   - Peers tell each other of hellos beside a healthy stream; because two clusters with one identity may connect to different replicas:
//     TestACopyIsFoundByContactsWithAllReplicas, TestI10ContactsThatAPeerDoesNotReadAreBounded.
//   - Workers get foreign segments from their own replica, which alone uses their key indexes and writes their records:
//     TestRelayedSessionsGetNoForeignSegments.
//   - What a peer sends is bounded like what a worker sends: TestI14APeersFramesAreBounded. A forgotten cluster is not taken from a peer:
//     TestI4AForgottenClusterIsNotRelayed.
//
// # A cluster's input costs its own part of the hub (I14)
//
//   - A segment beyond package segment's bounds is left out: TestI14AnInvalidSegmentCostsItsOwnEnvAlone.
//   - So is what exceeds Limits, from a report's first chunk on. The cluster is degraded, with the reason, until a complete report,
//     requested with back-off, counts in full: TestI14AClusterOverItsLimitIsDegradedAlone, TestI14AnUnfinishedReportIsKeptWithinItsBudget.
//   - New incarnations are rate-limited; because each writes to the registry: TestI14ANewTermIsNotWrittenDownWithoutEnd.
//   - What a cluster trusts and shows is saved within a second, because a rotation waits for it; its record alone:
//     TestI14AnUrgentRecordIsSavedAlone.
//   - Foreign segments are cut into frames by size: TestI14WhatAClusterSaysEndsNoOtherStream of package attach.
//
// # Identity (I12)
//
//   - A name's first cluster binds it, durably, to its kube-system uid. Another uid is refused and harms nothing:
//     TestI12AnotherClusterUnderATakenNameIsRefused.
//   - Clusters with one uid (a copied etcd) differ by term. Terms that alternate three times in a minute, or a replaced one that returns
//     three times beside a healthy one, quarantine both clusters until 5 min after both were seen: TestTwoThatAlternateAreBothQuarantined,
//     TestACrashLoopIsNoQuarantine. A hello with a revoked certificate counts for nothing; because who has it knows the uid:
//     TestI12ARevokedCertificateQuarantinesNoCluster.
//   - If the copy confirmed a release, the ledger ends the other sandbox when its cluster returns; without a key it runs until its shutdown
//     time or another release.
//   - A resourceVersion below the remembered one, in the Hello or a heartbeat that was not overtaken, means a restored etcd, until a term
//     begins whose worker was told: TestDecideFloor, TestEtcdRestored, TestEtcdRestoredUnderAStream,
//     TestI1IdlePodsAreReplacedAfterEtcdWasRestored.
//   - Stale sessions: TestADispatchedClaim, TestAStaleSessionIsAskedOnceMore of package claims.
//
// # Lifecycle of a name: free, registered, draining, forgotten
//
//   - Draining is durable and changes routing only: TestADrainingClusterGetsNoNewClaims.
//   - Forgetting waits for a tombstone's write only. Then the stream ends and the segments leave every view; absent workers learn it from
//     the Welcome: TestI4AForgottenClusterLeavesEveryView, TestAForgottenClusterIsRefused, TestASuccessorIsNotMeasuredByTheOneBefore.
//   - It revokes the name for every uid, and the certificates' keys under every name, until an operator reverts it:
//     TestForgettingRevokesTheCertificatesKey.
//   - A revocation refuses the keys that the record has, and certificates that were issued before it, but for keys that were issued since;
//     because the record has the last keys only: TestRevokingRefusesWhatWasIssuedBefore. Issue times are compared with a tolerance of ten
//     minutes (I11).
//   - An attached cluster that takes claims cannot be forgotten.
//   - Package registrycopy records bindings first.
//   - With several replicas a record is swapped: a replica that finds another's change takes it over and decides anew:
//     TestOneNameAtTwoReplicas, TestI4IncarnationsRiseAcrossReplicas. Each follows what others write:
//     TestI4AForgetAtOneReplicaEndsTheStreamAtAnother, TestAKeyRevokedAtOneReplicaIsRevokedAtAll, TestAReplicaThatWasCutOffCatchesUp.
//
// # Liveness (I6, I11)
//
//   - decideHealth uses the monotonic clock: TestLiveness, TestI11AStepOfTheWallClockChangesNoLiveness.
//   - A cluster without a stream is the last choice, later unreachable. Neither removes anything: TestI5NeitherSilenceNorDisconnectDeletes,
//     TestStaleClustersAreNotRoutedTo.
//   - Without a receipt it is the last choice until one arrives, or for 10 s.
//
// # What differs from the design
//
//   - Foreign segments go only to clusters that have the Env. They are sent in full when a cluster becomes known, and up to three seconds
//     late while first reports arrive.
//   - Workers are told which clusters are registered: first, and after a change, unless the list is too long:
//     TestRegisteredClustersAreSent, TestI14ALongListOfClustersIsNotSent.
//   - Changes that trigger no action (segment.Edge) are sent once a second.
package fleet
