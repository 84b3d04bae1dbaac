// SPDX-License-Identifier: Apache-2.0

// Package link is the one home of federation gRPC: how a worker and a hub connect, authenticate and stay connected. The content
// of the messages is up to the callers.
//
// In go certificate files and a target. Out come, for a worker, Run: a loop that dials, hands every connection to a function and
// dials again with full jitter; for a hub, NewServer: a gRPC server whose handlers call PeerCluster for the identity of the peer.
//
// # Identity (I12)
//
//   - Both sides always present a certificate (TLS 1.3, mutual).
//   - Its one URI name is the identity: spiffe://atoll.navix.sh/cluster/<id> or spiffe://atoll.navix.sh/hub. No message has a
//     field for it. A certificate with another number of URI names, or with any other URI, is refused.
//   - A worker accepts only a hub, and NewServer only clusters; because a worker's certificate must not make a hub.
//   - Replicas of one worker, which copy its history to each other, both present the certificate of their cluster: NewPeerServer
//     and DialPeer accept that name only. DialPeer checks it in place of a host name, which no worker's certificate has.
//
// # Unauthenticated peers (I14)
//
// Until a connection has shown a certificate it counts against MaxHandshakes and MaxHandshakesPerAddress of its listener
// (serve.Limit), and has ten seconds. After that it counts against MaxConnectionsPerCluster; because a cluster's worker needs two:
// TestI14AClustersConnectionsAreBounded.
//
// # Frames (I14)
//
// A frame never ends its stream: a frame that is too large or not valid text is sent empty. A frame that cannot be read, or that
// would take a hundred times its size in memory, is received empty. Both are counted (atoll_link_frames_dropped_total). Every
// build takes an empty frame for one of a newer peer and ignores it: TestI14AFrameThatCannotTravelIsDroppedAlone. Its users check
// what is in a frame: packages fleet and attach of the hub, agent and sync of the worker.
//
// # Certificates on disk
//
// Files are read at every handshake; because a rotated certificate, or a CA file with an overlapping second CA, must take effect
// at the next connection. While files do not match, as in the middle of a rotation, the last good ones stay in use. Sessions are
// not resumed; because a resumed session would outlive the CA that signed it.
//
// # Tunnels
//
// A tunnel is a stream of its own, on a second connection, which Tunnels keeps beside the first; because on a slow path bytes in
// flight would delay a heartbeat, although gRPC keeps an unread stream from blocking the others of its connection. Its flow
// control is gRPC's, with windows of fixed size. Its identity is that of its certificate, and its token must have been issued to
// this cluster.
//
// A replica of a worker that does not lead forwards its callers to the leader (ReachThrough): the same frames, opened from the
// caller's side. A second stream, without data, ends with each tunnel; because a gRPC client learns of a stream's end only after
// the data before it, which an unread stream keeps back.
//
// # What differs from the design
//
//   - gRPC's own reconnecting is not used: every attempt is a ClientConn of its own; because gRPC's back-off starts at one second
//     with a jitter of a fifth, and a thousand workers would return in step after a hub's restart.
//   - Streams are not traced as spans; because these would last for days. Each dispatch carries trace context instead
//     (TraceContext).
package link
