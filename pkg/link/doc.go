// SPDX-License-Identifier: Apache-2.0

// Package link is the one home of federation gRPC: how a worker and a hub find, recognise and keep each other. What they
// say to each other is up to the callers.
//
// In go certificate files and a target; out come, for a worker, Run: a loop that dials, hands every connection to a function
// and dials again with full jitter; for a hub, NewServer: a gRPC server whose handlers ask PeerCluster who is calling.
//
// # Identity (I12)
//
// Both sides always present a certificate (TLS 1.3, mutual). Who somebody is stands in the one URI name of it,
// spiffe://atoll.navix.sh/cluster/<id> or spiffe://atoll.navix.sh/hub, and nowhere else: no message has a field for it.
// A certificate with another number of URI names, or with any other URI, is nobody. A worker accepts only a hub, so a
// worker's certificate does not make a hub, and NewServer accepts only clusters.
//
// Replicas of one worker, which copy its history to each other, both present the certificate of their cluster: NewPeerServer
// and DialPeer take that name alone. The one that dials looks for it instead of a host's name, which no certificate of a worker
// has.
//
// # Strangers (I14)
//
// Until a certificate was shown a connection counts against MaxHandshakes and MaxHandshakesPerAddress of its listener
// (serve.Limit), and has ten seconds.
//
// # Frames (I14)
//
// A frame never ends the stream that it travels on: one that is too large or no text goes out empty, one that cannot be read, or
// that would take a hundred times its size in memory, comes in empty, and both are counted (atoll_link_frames_dropped_total). An
// empty frame is one of a newer peer for every build, and is ignored: TestI14AFrameThatCannotTravelIsDroppedAlone. What is in a
// frame is checked by who uses it: packages fleet and attach of the hub, agent and sync of the worker.
//
// # Certificates on disk
//
// Files are read at every handshake, so that a rotated certificate, or a CA file with an overlapping second CA, is used
// from the next connection on. Files that do not fit together, as in the middle of a rotation, leave the last good ones
// in use. Sessions are not resumed: a resumed one would outlive the CA that vouched for it.
//
// # Tunnels
//
// A tunnel is a stream of its own, on a second connection, which Tunnels keeps beside the first: gRPC keeps a stream that is
// not read from holding up the others of its connection, but bytes that are under way on it would still be ahead of a
// heartbeat on a slow path. Its flow control is gRPC's, with windows of fixed size. Its identity is that of its own
// certificate, and its token must be one that was given to this cluster.
//
// A replica of a worker that does not lead passes its callers on to the one that does (ReachThrough): the same frames, opened
// from the caller's side. A gRPC client hears of a stream's end only after what was sent before, which a caller that does not
// read keeps back; so a second stream, without data, ends with each tunnel.
//
// # Where it departs from the design's mechanism
//
// gRPC's own reconnecting is not used: every attempt is a ClientConn of its own, because gRPC's back-off starts at one
// second and its jitter is a fifth; a thousand workers would come back in step after a hub's restart. Streams are not
// traced as spans, which would last for days; trace context travels with each dispatch instead (TraceContext).
package link
