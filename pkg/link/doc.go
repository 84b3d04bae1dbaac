// SPDX-License-Identifier: Apache-2.0

// Package link is the only package that uses federation gRPC: it connects, authenticates and reconnects workers and hubs.
//
// In: a Source of certificates, such as files, and a target. Out: for a worker Run, which redials with full jitter; for a hub NewServer,
// with PeerCluster.
//
// # Identity (I12)
//
//   - Both sides present a certificate (mutual TLS 1.3) with exactly one URI name, the identity: spiffe://atoll.navix.sh/cluster/<id> or
//     spiffe://atoll.navix.sh/hub. Every other certificate is rejected.
//   - A worker accepts only a hub, and NewServer accepts only clusters, so a worker's certificate cannot be used to act as a hub. The
//     replicas of a worker accept only their own cluster: NewPeerServer, DialPeer.
//   - Files are read at every handshake; so rotations take effect immediately. While the files do not match each other, the last good ones
//     remain in use.
//   - No session is resumed; because it would outlive its CA.
//
// # Joining
//
//   - A worker without a certificate calls Dial.Join with an Invitation. It sends nothing before the server has presented a CA with the
//     invitation's hash, and a hub's certificate of that CA: TestAnInvitationIsSentToItsHubAlone.
//   - A worker verifies the certificate that a hub issues (VerifyIssued) and the CAs that it sends (VerifyTrust) before it uses them. The
//     CAs must accept the hub that sent them, so that a mistake does not lock the worker out. Clocks may be off by ten minutes (I11).
//
// # Bounds (I14)
//
//   - At most half of the processors compute handshakes, so that workers that attach together leave processors for claims, at the hub and
//     in a process that hosts them: TestI14SlowHandshakesHoldUpNoOther, TestAnAbandonedHandshakeLeavesNoSlotTaken.
//
//   - A connection has ten seconds to present its certificate. Until then it counts against MaxHandshakes and MaxHandshakesPerAddress
//     (serve.Limit), afterwards against MaxConnectionsPerCluster: TestI14AClustersConnectionsAreBounded.
//
//   - No frame ends its stream. A frame that is too large or not valid text is sent empty. A frame that is unreadable, or takes a hundred
//     times its size in memory, is received empty. Peers ignore empty frames; atoll_link_frames_dropped_total counts them:
//     TestI14AFrameThatCannotTravelIsDroppedAlone.
//
//   - A stream with compressed frames is rejected before any frame is read: TestI14TheLinkDecompressesNothing.
//
//   - A cluster's streams beyond a burst of 4,096 and a rate of 2,000 per second wait in their connection: TestI14AClustersStreamsArePaced.
//
//   - A cluster's frames with less than 64 bytes of data, beyond a burst of 40,000 and a rate of 20,000 per second, wait in their
//     connection; because gRPC accepts pings for a second after it has refused them: TestI14AClustersFramesArePaced.
//
//   - A caller without a certificate, a guest, may make one call, Join, of at most 32 KiB. Its connection lasts at most 30 s and counts as
//     unauthenticated until it ends. Guests are rate-limited, and refused before anything is read: TestI14AGuestMayOnlyJoin,
//     TestI14GuestsArePaced.
//
// # Tunnels
//
//   - A tunnel is a stream on a second connection (Tunnels); because its bytes would delay heartbeats. gRPC's windows, of fixed size,
//     control its flow.
//   - A send to a tunnel that has ended returns the reason that was received: TestASendToATunnelThatIsOverHasItsReason.
//   - A tunnel's token must have been issued to the cluster of its certificate.
//   - Other replicas forward callers to the leader (ReachThrough). A second stream, without data, ends with each tunnel; because gRPC
//     clients learn of the end of a stream only after they have read its data.
//   - If a stream ends for a new certificate, its conversations continue with the next stream: TestConversationsOutliveARenewal of package
//     agent.
//
// # Several replicas of a hub
//
//   - Each attempt dials one address, from a list or a DNS name. For the next 30 s that address is the last choice: TestChoose,
//     TestRunMovesToAnotherReplica.
//   - A redirected worker dials again immediately. Its tunnels use the replica of its stream: TestTunnelsGoWhereTheStreamIs.
//
// # What differs from the design
//
//   - Every attempt is a ClientConn of its own; because gRPC's backoff would reconnect a thousand workers at the same time.
//   - Streams have no spans; because these would last for days. Dispatches carry trace context (TraceContext).
package link
