// SPDX-License-Identifier: Apache-2.0

// Package attach is the hub's end of the link: it serves every worker's stream and dispatches calls over it.
//
// In: frames of workers, and dispatches. Out: reports and heartbeats for the fleet, outcomes, callbacks of Options. The certificate, never
// a frame, identifies the worker (I12).
//
// # Isolation (I7)
//
//   - Each stream has its own goroutines.
//   - The reader never blocks. Acks have a bounded queue. A worker that does not read them loses its stream.
//   - Dispatches go to the writer directly; because a dispatch that the writer did not get is then certainly unsent.
//   - Urgent frames (acks, dispatches) overtake foreign segments.
//
// # Bounds (I14, I15)
//
//   - Input other than reports is bounded on receipt (bounds.go): an oversized response becomes an unclear outcome, an oversized record is
//     dropped and counted, and an oversized Hello is refused.
//   - The state that is kept about claims of ended streams is bounded per cluster.
//   - A request that fits no frame is refused: TestI14ARequestThatNoFrameCarriesIsRefused.
//   - A response counts only for a dispatch on its stream. An acknowledgement of CAs counts only for the CAs that were sent last on its
//     stream: TestI14OnlyWhatTheHubSentIsAcknowledged.
//   - Peers with a revoked certificate are counted and paced separately from the cluster that has their name, and their tunnels are refused
//     before they name a token: TestI14ARevokedCertificateTakesNoPlaceOfItsCluster, TestI14TunnelsOfARevokedCertificateTakeNoPlace.
//
// # First reports
//
// A cluster that must send a complete report gets its Welcome when one of a few slots is free. So claims find the first clusters early, and
// few reports are in memory at once (TestStreamsHaveReportSlots). A slot ends after 250 ms, and waiting clusters are served in order (I7):
// TestI7ClustersThatDoNothingKeepNoSlot of package slots. Meanwhile their workers get HeartbeatAcks, which show that the hub is alive:
// TestWorkersThatWaitSeeThatTheHubLives.
//
//   - A cluster that the hub knows already, or whose worker is older, continues without a slot after a second.
//   - A cluster whose etcd was restored does not wait (I1).
//
// Foreign segments have slots of their own in package fleet: TestForeignMessagesHaveSlots there. The fleet makes the next message of a
// stream once gRPC has taken the previous one: TestForeignMessagesAreMadeOneByOne.
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
//   - If the caller of a claim without a key left, or the response was lost, the hub releases the sandbox (orphans.go). It learns the id
//     from the worker, which reports the response again; because the worker does not know whether a caller got it. Without that, the
//     sandbox would hold its Pod until its first-activity timeout, 5 min by default, as it does after a restart of the hub:
//     TestASandboxThatWasLostWithItsStreamIsReleased, TestAReleaseIsOwedUntilItIsConfirmed.
//   - The other replicas are told which calls the end of a stream left open, and which sandboxes it could not release; because the worker
//     may attach there: TestACallThatAnotherReplicaLostIsReleased.
//   - A worker with a new certificate attaches again. New calls wait for that (renewPatience). Calls that the end of the old stream
//     interrupted are sent again if they may be carried out twice: TestACallThatARenewalCutsIsSentAgain. At most a quarter of the clusters
//     renew at a time, because a claim that finds all of them between two streams has nowhere to go: TestClustersRenewInTurn.
//   - If the worker attaches to another replica, calls stop waiting here; because that replica has the stream:
//     TestNoCallWaitsForAClusterThatIsAtAnotherReplica.
//   - A worker is asked at most once per stream to attach to another replica: TestRedirectAsksEachStreamOnce.
//   - A tunnel's token is random. It is valid once, for the called cluster, while the caller waits. A tunnel ends when its certificate's
//     key is revoked, here or at another replica; because a revoked worker would otherwise keep its conversations:
//     TestTunnelsOfARevokedCertificateEnd.
package attach
