// SPDX-License-Identifier: Apache-2.0

// Package agent is the worker's end of the link: it reports the state of its cluster to the hub and carries out the hub's
// dispatches.
//
// In: Envs and pools from the informers' caches, the inventory's counts, and the hub's frames. Out: segments, answers, terminal
// records, and foreign segments for package sync. It runs on the leader only. It keeps I1 across a restored etcd, and I5, I8 and
// I10 on the worker's side of the link.
//
//	start.go           set-up, and one term of leadership
//	uplink.go          one stream
//	metrics.go         metrics
//	dispatch.go        the hub's dispatches
//	reach.go           tunnels for the hub's callers, over one stream
//	hello.go           the first message of a stream
//	ended.go           terminal records
//	decide.go          an Env and its pools into a segment (pure)
//	outbox.go          the reports of one stream
//	source.go          which Envs may differ from what was reported
//	agent.go           the agent
//	foreign.go         the hub's messages about other clusters
//	standalone.go      pools without an Env, as the one member of an Env of their name
//	unacknowledged.go  answers that the hub may not have
//	shutdown.go        the orderly end of the link
//	restored.go        an etcd that was restored from a backup
//	incarnation.go     the number of this leadership, in a ConfigMap
//	trace.go           spans of dispatches
//
// # Incarnation
//
// A leader raises the number in the ConfigMap atoll-worker-state before it serves claims. It raises it again when the hub has
// seen a number that is not lower, because the ConfigMap was lost or restored. In both cases nothing carries the number before it
// is stored. A number that cannot be read ends the process: with 0 instead, a new leader would look older than the last one. Held
// by TestIncarnation.
//
// # A restored etcd (I1)
//
// A Pod that looks idle in a restored etcd may run a sandbox.
//
//   - At the start of a stream: the hub remembers the highest revision of etcd and reports a step back in its Welcome. Then all
//     idle Pods are replaced before the stream begins and before any claim is served. So all claims, local ones too, wait for the
//     Welcome, for 2 s at most (I8); held by TestI1NothingIsServedBeforeTheHubsWordOnEtcd.
//   - During a term: package inventory finds it by single Pods that it reads every second, the leader by the revision that it
//     reads as often, or the hub at a heartbeat. Then claims are refused, idle Pods are replaced, and the process ends, because
//     its caches and its index describe a state that no longer exists. The next term starts as above; held by
//     TestI1ATermEndsWhenTheHubSaysThatEtcdWasRestored.
//   - A claimed Pod stays until its sandbox ends. Then it is replaced and never reset.
//   - A revision shows the restore only until new writes exceed the old revision, and informers need not notice the restore at
//     all. Hence the reads of Pods.
//   - One gap remains, of a second after the API server is back: if the informers already have the restored state, a claim can
//     get a Pod that runs a sandbox.
//
// # Reports
//
//   - There is no queue of events (I10). Informers and the claim service mark Envs as dirty, and a report describes the marked
//     Envs as they are when it is built.
//   - Marks are collected for 100 ms. A mark that shows an edge (ready idle from or to 0, saturated on or off) is sent at once,
//     together with all that wait.
//   - At most 16 reports are unacknowledged. Beyond that marks wait; held by TestCredit.
//   - An Env is reported as removed only if the synced cache does not have it (I5). An Env without a local member is reported
//     without members, because the hub sends foreign segments to every cluster that has the Env.
//   - The first report of a stream is complete.
//   - can_grow and saturated_for are the autoscaler's: whether a waiting claim makes the pool grow, or for how long it cannot.
//     Without an autoscaler no pool grows, and the hub queues no claims for growth.
//   - A pool without an Env is reported as the one member of an Env of its name, unless that Env exists (standalone.go). A pool
//     that another controller manages is reported as Inconsistent and gets no claims.
//
// # Dispatches
//
//   - Each dispatch is confirmed at once, carried out in its own goroutine, and gets one answer.
//   - covered_by names a report that is built after the effect of the claim. The report precedes the answer, so that the hub
//     subtracts a Pod once. Without credit the report follows, even if it changes nothing, because the hub waits for it.
//   - Claims and other calls have separate bounds, so that waiting claims keep no release out; held by
//     TestClaimsLeaveRoomForOtherCalls.
//   - A claim without a key ends with its stream. A sandbox whose answer could not be sent is released, because no caller has it.
//   - A claim with a key continues in package claim, and its caller's next call joins it. Its dispatch ends with the stream, so
//     that broken streams leave nothing behind (I10); held by TestI10ADispatchEndsWithItsStream.
//   - A dispatch beyond the bound is refused only if its attempt is certainly unknown (claim.Decline). Otherwise its outcome is
//     unclear, and the hub asks again; held by TestI2ABusyWorkerRefusesNoAttemptThatItKnows.
//
// # Tunnels
//
// Package podtunnel carries out a call to reach a sandbox. The call is answered once a tunnel to the hub is open. The
// conversation continues after the answer, and ends with the stream, the sandbox, or the caller.
//
// # Shutdown
//
// When a leader must end, the agent leaves the hub before anything stops serving. Claims that wait end at once, so that the hub
// takes them elsewhere. Writes under way complete and are answered. New calls are answered as a stale session. Then this side
// ends the stream, so every answer arrives. This takes as long as the longest write, 3 s at most (shutdown.go); held by
// TestAnOrderlyEndLosesNoAnswer.
//
// # Without a hub (I8)
//
// The agent keeps dialling and does nothing else. Nothing in the worker waits for it except Ready, which then needs only the API
// server of the cluster; held by TestI8WithoutAHub.
package agent
