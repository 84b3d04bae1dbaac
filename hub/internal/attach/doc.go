// SPDX-License-Identifier: Apache-2.0

// Package attach is the hub's end of the link: it serves every worker's stream and dispatches calls over it.
//
// In: workers' frames, and dispatches. Out: reports and heartbeats for the fleet, outcomes, callbacks of Options. The certificate, never a
// frame, names the worker (I12).
//
// # Isolation (I7)
//
//   - Each stream has its own goroutines.
//   - The reader never blocks. Acks have a bounded queue; a worker that does not read them loses its stream.
//   - Dispatches go to the writer directly; because one not handed over is then certainly unsent.
//   - Urgent frames (acks, dispatches) overtake foreign segments.
//
// # Bounds (I14, I15)
//
//   - Input besides reports is bounded on receipt (bounds.go): an oversized response becomes an unclear outcome, a record is dropped and
//     counted, a Hello refused.
//   - What is kept about claims of ended streams is bounded per cluster.
//   - A request that fits no frame is refused: TestI14ARequestThatNoFrameCarriesIsRefused.
//   - A response counts only for a dispatch on its stream, and an acknowledgement of CAs for those that were sent last on it:
//     TestI14OnlyWhatTheHubSentIsAcknowledged.
//   - Peers whose certificate was revoked have places and turns apart from those of the cluster that has their name, and tunnels of theirs
//     are refused before they name a token: TestI14ARevokedCertificateTakesNoPlaceOfItsCluster,
//     TestI14TunnelsOfARevokedCertificateTakeNoPlace.
//
// # First reports
//
// A cluster whose complete report is needed is welcomed when one of few slots is free: claims then find the first clusters early, and few
// reports are in memory at once (TestStreamsHaveReportSlots). A slot ends after 250 ms, and the clusters that wait are served in order
// (I7): TestI7ClustersThatDoNothingKeepNoSlot of package slots. Meanwhile their workers get HeartbeatAcks, by which they see that the hub
// lives: TestWorkersThatWaitSeeThatTheHubLives.
//
//   - A cluster that the hub knows already, or an older worker, goes on without a slot after a second.
//   - One whose etcd was restored does not wait (I1).
//
// Foreign segments have slots of their own, which package fleet gives: TestForeignMessagesHaveSlots there. The fleet makes the next message
// of a stream once gRPC has taken the last one: TestForeignMessagesAreMadeOneByOne.
//
// # Outcomes of a dispatch
//
//	the worker responded                                the response
//	not handed to the stream (none, stalled 1 s, ctx)   ErrNotConnected: nothing happened
//	handed over, then stream broken or ctx ended        ErrUnclear
//	a claim without a key, no receipt within 1 s        ErrUnclear: it may try another cluster
//
// Rules:
//
//   - Any other dispatch waits for its context; because a claim with a key stays with its cluster.
//   - A sandbox for a claim without a key whose caller left, or whose response was lost (orphans.go: the worker names it again), is
//     released, or ends by the first-activity timeout. What the end of a stream leaves open is told to the other replicas, where the
//     worker may be back: TestACallThatAnotherReplicaLostIsReleased.
//   - A worker with a new certificate attaches again. New calls wait for that (renewPatience), and those that its old stream's end has cut
//     are sent again if they may be carried out twice: TestACallThatARenewalCutsIsSentAgain. Of the clusters a quarter renews at a time,
//     because a claim that finds all of them attaching again has nowhere to go: TestClustersRenewInTurn.
//   - Where it attaches to another replica, no call waits here any more; because that replica has the stream:
//     TestNoCallWaitsForAClusterThatIsAtAnotherReplica.
//   - A worker is asked once a stream to attach to another replica: TestRedirectAsksEachStreamOnce.
//   - A tunnel's token is random, valid once, for the called cluster, while the caller waits. A tunnel ends when its certificate's key is
//     revoked, here or at another replica; because a revoked worker would keep conversations: TestTunnelsOfARevokedCertificateEnd.
package attach
