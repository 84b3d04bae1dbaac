// SPDX-License-Identifier: Apache-2.0

// Package agent is the worker's end of the link: it tells the hub what its cluster has, and does what the hub asks.
//
// In: Envs and pools from the informers' caches, the inventory's counts, frames of the hub. Out: segments, answers, terminal
// records, and foreign segments for package sync. It runs on the leader only.
//
//	reach.go           conversations of the hub's callers, over one stream
//	agent.go           the agent, and when claims may be served
//	metrics.go         metrics
//	outbox.go          what one stream has reported
//	standalone.go      pools without an Env, as the one member of an Env of their name
//	unacknowledged.go  answers that the hub may not have
//	decide.go          an Env and its pools into a segment (pure)
//	source.go          which Envs may look different from what was reported
//	trace.go           spans of dispatches
//	incarnation.go     the number of this leadership, in a ConfigMap
//	shutdown.go        the orderly end of the link
//	restored.go        an etcd that was set back
//	hello.go           the first message of a stream
//	foreign.go         the hub's word about other clusters
//	ended.go           terminal records
//	dispatch.go        what the hub asks
//	uplink.go          one stream
//	start.go           set-up, and one term of leadership
//
// # Incarnation
//
// A leader raises the number in the ConfigMap atoll-worker-state before claims are served, and again when the hub has seen
// one that is not lower (a ConfigMap that was lost or restored), in both cases before anything carries it. What cannot be
// read is an error that ends the process; taking it for 0 would make a new leader look older than the last one.
//
// # A restored etcd (I1)
//
// A Pod that looks idle in an etcd that was set back may run a sandbox. The hub remembers how far etcd was and says so in
// its welcome: all idle Pods are replaced then, before the stream begins and before anybody is served. So claims, local
// ones too, wait for the welcome, for 2 s at most (I8). Under a leader it is noticed by the claim service, which looks at
// single Pods every second (see there), by the revision that the leader reads as often, or by the hub at the heartbeat:
// claims are refused from then on, idle Pods are replaced, and the process ends, because its caches and its index are of a
// cluster that is no more; the next term begins as above. What is claimed stays, until it ends: its Pod is replaced then and never reset. A revision tells only until writers have
// brought it past where it was, and informers need not learn of the restored state at all; hence the Pods. Between the
// restore and its discovery, a second after the API server is back, a claim can be given a Pod that runs a sandbox, if
// informers have learned of the restored state by then.
//
// # Reports
//
// There is no queue of events (I10). Informers and the claim service mark Envs as dirty; a report says what marked Envs
// look like when it is made. Marks are collected for 100 ms, unless one shows an edge (ready idle from or to 0, saturated
// on or off), which goes out at once with all that waits. At most 16 reports are unacknowledged; until then marks just
// stay. An Env is reported as removed when the synced cache has no such Env, and never for another reason (I5); one
// without a local member is reported without members, because the hub sends foreign segments to whoever has the Env. The
// first report of a stream is complete.
//
// can_grow and saturated_for are what the autoscaler expects: that a claim which waits makes the pool grow, or for how long
// nothing will. Without one nothing grows by itself, and a hub that queued claims for growth would wait for nobody.
//
// A pool that no Env owns is reported as the one member of an Env of its name, unless there is such an Env (standalone.go). One that
// another controller keeps is reported as Inconsistent, which gets no claims.
//
// # Dispatches
//
// Each is confirmed at once, carried out in a goroutine of its own, and answered once. covered_by names a report that is
// made after the claim's effect. It goes ahead of the answer, so that the hub takes a Pod off once; where there is no credit
// for it, it follows, even if it changes nothing: the hub waits for it.
// Claims under way and other calls are bounded apart: claims that wait, however many, do not keep releases out.
// A claim without a key ends with its stream, and a sandbox whose answer could not be sent is released, since nobody was
// told of it; a claim with a key goes on in package claim, for its caller will ask again and joins it. Its dispatch ends
// with the stream as well, so that streams that break leave nothing that counts. Where there is no room for one, it is
// refused only if its attempt is certainly not known (claim.Decline); else its outcome is unclear, and it is asked for again.
//
// # Tunnels
//
// A call to reach a sandbox is carried out by package podtunnel, and answered once a tunnel to the hub is open. The conversation goes
// on behind the answer and ends with the stream, with the sandbox, or with the caller.
//
// # The end
//
// Before anything of a leader that is told to end stops serving, the agent parts from the hub: claims that wait are given up
// at once, so that the hub takes them elsewhere; what is being written is finished and answered; what comes now is answered
// as a stale session; then the stream ends from this side, and every answer arrives. It lasts as long as the longest write,
// 3 s at most. See shutdown.go.
//
// # Without a hub (I8)
//
// The agent keeps dialling and does nothing else. Nothing in the worker waits for it but Ready, which needs the
// cluster's own API server only.
package agent
