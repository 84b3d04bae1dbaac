// SPDX-License-Identifier: Apache-2.0

// Package link is the one home of federation gRPC: how worker and hub connect, authenticate and stay connected.
//
// In: a Source of certificates, such as files, and a target. Out: for a worker Run, which redials with full jitter; for a hub NewServer,
// with PeerCluster.
//
// # Identity (I12)
//
//   - Both sides present a certificate (mutual TLS 1.3) with one URI name, the identity: spiffe://atoll.navix.sh/cluster/<id> or
//     spiffe://atoll.navix.sh/hub. All else is refused.
//   - A worker accepts only a hub, NewServer only clusters, so a worker's certificate makes no hub. A worker's replicas accept only their
//     own cluster: NewPeerServer, DialPeer.
//   - Files are read at every handshake; so rotations take effect at once. While they do not match, the last good ones stay.
//   - No session is resumed; because it would outlive its CA.
//
// # Joining
//
//   - A worker without a certificate calls Dial.Join with an Invitation. It sends nothing before the server has shown a CA with the
//     invitation's hash, and a hub's certificate of that CA: TestAnInvitationIsSentToItsHubAlone.
//   - What a hub issues (VerifyIssued) and the CAs it sends (VerifyTrust) are verified before they are used: they must accept the hub
//     that has sent them, so that a mistake does not lock the worker out. Clocks may be off by ten minutes (I11).
//
// # Bounds (I14)
//
//   - Half of the processors at most compute handshakes, so that workers that attach together leave claims one, at the hub and in a
//     process that hosts them: TestI14SlowHandshakesHoldUpNoOther, TestAnAbandonedHandshakeLeavesNoTurnTaken.
//
//   - Before its certificate a connection has ten seconds and counts against MaxHandshakes and MaxHandshakesPerAddress (serve.Limit), then
//     against MaxConnectionsPerCluster: TestI14AClustersConnectionsAreBounded.
//
//   - No frame ends its stream. Too large or not valid text, it is sent empty; unreadable, or a hundred times its size in memory, it is
//     received empty. Peers ignore empty frames; atoll_link_frames_dropped_total counts them: TestI14AFrameThatCannotTravelIsDroppedAlone.
//
//   - A stream of compressed frames is refused before any is read: TestI14TheLinkDecompressesNothing.
//
//   - A cluster's streams beyond 4,096 at once and 2,000 a second wait on their connection: TestI14AClustersStreamsArePaced.
//
//   - A cluster's frames with less than 64 bytes of data, beyond 40,000 at once and 20,000 a second, wait on their connection; because gRPC
//     takes pings for a second after it has refused them: TestI14AClustersFramesArePaced.
//
//   - A caller without a certificate, a guest, has one call of 32 KiB, Join, on a connection of 30 s that counts as unauthenticated until
//     it ends. Guests are paced, and refused before anything is read: TestI14AGuestMayOnlyJoin, TestI14GuestsArePaced.
//
// # Tunnels
//
//   - A tunnel is a stream on a second connection (Tunnels); because its bytes would delay heartbeats. gRPC's windows, of fixed size,
//     control its flow.
//   - A send to a tunnel that is over has the reason that was received: TestASendToATunnelThatIsOverHasItsReason.
//   - Its token must have been issued to its certificate's cluster.
//   - Other replicas forward callers to the leader (ReachThrough). A second stream, without data, ends with each tunnel; because gRPC
//     clients learn of an end only after unread data.
//   - Conversations of a stream that ends for a new certificate go on with the next one: TestConversationsOutliveARenewal of package agent.
//
// # Several replicas of a hub
//
//   - Each attempt goes to one address, of a list or of a DNS name; for 30 s it then is the last choice: TestChoose,
//     TestRunMovesToAnotherReplica.
//   - A redirected worker dials at once. Its tunnels go where its stream is: TestTunnelsGoWhereTheStreamIs.
//
// # What differs from the design
//
//   - Every attempt is a ClientConn of its own; because gRPC's back-off returns a thousand workers in step.
//   - Streams are no spans; because these would last for days. Dispatches carry trace context (TraceContext).
package link
