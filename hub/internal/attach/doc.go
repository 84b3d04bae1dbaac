// SPDX-License-Identifier: Apache-2.0

// Package attach is the hub's end of the link: it serves the stream of every worker and dispatches calls over it.
//
// In go frames of workers and dispatches of package claims. Out come calls of the fleet (reports, heartbeats), outcomes of
// dispatches, and the callbacks of Options. A worker's identity is its certificate's, and this package stamps it; frames have no
// field for it (I12).
//
// # Isolation (I7)
//
//   - Each stream has its own goroutines: a reader, a writer, a pump for foreign segments, one that stores ended sandboxes and
//     one that releases orphans.
//   - The reader never blocks. It puts acks into a bounded queue; a worker that does not read its acks loses its stream.
//   - A dispatch is handed to the writer directly; because a dispatch that was not handed over is then known to be unsent.
//   - Urgent frames (acks, dispatches) overtake foreign segments at every frame.
//
// # Bounds (I14, I15)
//
//   - Input besides reports is bounded on receipt (bounds.go): an oversized response becomes an unclear outcome, an oversized
//     record is dropped and counted, an oversized Hello is refused.
//   - What is kept about claims whose stream ended is bounded per cluster.
//   - A request that fits no frame is the caller's error, and is refused before it reaches a stream:
//     TestI14ARequestThatNoFrameCarriesIsRefused.
//   - A response counts only for the dispatch that was sent on the same stream (I15).
//
// # Outcomes of a dispatch
//
//	the worker responded                                the response
//	not handed to the stream (none, stalled 1 s, ctx)   ErrNotConnected: nothing happened
//	handed over, then stream broken or ctx ended        ErrUnclear
//	a claim without a key, no receipt within 1 s        ErrUnclear: the claim may try another cluster
//
// Any other dispatch waits until its context ends; because a claim with a key must stay with its cluster.
//
// A sandbox that arrives for a claim without a key after its caller left is released. So is a sandbox whose response was lost
// with its stream: the worker names it on the next stream (orphans.go). If hub or worker dies in between, the first-activity
// timeout ends the sandbox.
//
// # Tunnels
//
// A call to reach a sandbox carries a token. The worker opens a stream for the call and presents the token. A token is random,
// valid once, for the called cluster only, and only while the caller waits.
package attach
