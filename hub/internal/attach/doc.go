// SPDX-License-Identifier: Apache-2.0

// Package attach is the hub's end of the link: it serves the stream of every worker and dispatches calls over it.
//
// In go frames of workers and, from the claims side, dispatches; out come calls of the fleet (reports, heartbeats), answers
// to dispatches, and the callbacks of Options. Who a worker is comes from its certificate and is stamped here; the frames
// have no field for it (I12).
//
// # Isolation (I7)
//
// A stream has goroutines of its own: a reader, a writer, a pump for foreign segments, one that stores ended sandboxes
// and one that releases orphans. The reader waits for nobody: what it produces (acks) goes into a bounded queue, and a worker that does not
// take its acks loses its stream. A dispatch is handed to the writer directly, so that one which could not be handed over
// is known to be unsent. Urgent frames (acks, dispatches) pass foreign segments at every frame.
//
// What a worker sends besides reports is bounded where it comes in (bounds.go, I14): an answer that is too large to be passed on
// becomes an unclear one, a record that is too large is dropped and counted, a Hello that is too large is refused. What is
// remembered of claims whose stream ended is bounded by cluster. A request that no frame can carry is its caller's fault and is
// refused before it reaches a stream: TestI14ARequestThatNoFrameCarriesIsRefused. An answer counts for the dispatch that its
// stream was sent, and for nothing else (I15).
//
// # What a dispatch comes to
//
//	answered                                            the answer
//	not handed to the stream (none, stalled 1 s, ctx)   ErrNotConnected: nothing happened
//	handed over, then stream broken or ctx ended        ErrUnclear
//	a claim without a key, no receipt within 1 s        ErrUnclear: its caller may go elsewhere
//
// Everything else waits for as long as its context does: a keyed claim may not go elsewhere anyway. A sandbox that
// arrives for a claim without a key that nobody waits for any more is released. So is one whose answer was lost with its
// stream: the worker names it on the next one, see orphans.go; if hub or worker has died in between, it ends by its
// first-activity timeout.
//
// # Tunnels
//
// A call to reach a sandbox carries a token, which the worker names on a stream that it opens for it. The token is random,
// good once, for the cluster that was called, and only while somebody waits.
package attach
