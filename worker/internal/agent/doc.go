// SPDX-License-Identifier: Apache-2.0

// Package agent is the worker's end of the link: it reports its cluster's state to the hub and carries out the hub's dispatches.
//
// In: segments (package segments), the hub's frames. Out: reports, answers, terminal records, and foreign segments for package
// sync. It runs on the leader. It keeps I1 across a restored etcd, and I5, I8 and I10.
//
//	start.go           a term of leadership
//	uplink.go          one stream
//	metrics.go
//	dispatch.go
//	reach.go           tunnels
//	hello.go           a stream's first message
//	ended.go           terminal records
//	outbox.go          reports
//	reporting.go       when they are sent
//	segments.go        this cluster's segments, for the local API
//	agent.go
//	foreign.go         messages about other clusters
//	unacknowledged.go  answers the hub may lack
//	shutdown.go
//	redirect.go        to another replica of the hub
//	restored.go
//	incarnation.go
//	ledger.go          how far the hub's ledger had come
//	allotted.go        whether the hub limits growth
//	trace.go
//
// # Rules
//
//   - A leader stores a higher incarnation in the ConfigMap atoll-worker-state before it serves claims, and again when the hub has seen one
//     that is not lower. A process that cannot read the number ends; because 0 would look older: TestIncarnation.
//   - A leader leaves the hub before it stops serving, in 3 s at most: waiting claims go elsewhere, writes under way are answered, new
//     calls get a stale session: TestAnOrderlyEndLosesNoAnswer.
//   - A stream that the hub redirects ends once its calls have, or after 2 s; then another replica is dialled:
//     TestARedirectedStreamEndsAfterItsCalls.
//   - I8: only Ready waits for the hub. Without a hub it needs just the API server: TestI8WithoutAHub.
//
// # A restored etcd (I1)
//
// A Pod that looks idle in a restored etcd may run a sandbox.
//
//   - The hub's Welcome reports a step back of etcd's revision. Then all idle Pods are replaced. Claims wait for that, at most 2 s for the
//     Welcome (I8): TestI1NothingIsServedBeforeTheHubsWordOnEtcd.
//   - During a term, Pods (package inventory), the revision or a heartbeat of the hub show it; because a revision does so only until new
//     writes exceed it. Claims are refused, idle Pods replaced, and the process ends; because its caches are wrong:
//     TestI1ATermEndsWhenTheHubSaysThatEtcdWasRestored.
//   - A claimed Pod is replaced after its sandbox, never reset.
//   - One gap remains: for a second after the API server is back, a claim can get a Pod that runs a sandbox.
//
// # Allotments (I9)
//
// Whether the hub divides maxReplicas over clusters is in its Welcome, and in the ConfigMap before the stream begins; because a leader that
// starts while such a hub is away must let no group grow: TestI9TheHubsWordOnAllotmentsIsKept. Rooms are package rooms'.
//
// # The hub's ledger (I2)
//
// The worker remembers how far it had come, so that a hub whose store was set back learns it: in memory what each frame says, in the
// ConfigMap every 5 min: TestTheLedgersMarkIsRemembered.
//
// # Reports
//
//   - Changes are collected for 100 ms. An edge (ready idle from or to 0, saturated on or off) is sent at once.
//   - At most 16 reports are unacknowledged: TestCredit.
//   - A stream's first report is complete, or, where the hub has the view of this term that a hub has acknowledged, of the differences,
//     with the key index: TestAStreamResumes.
//   - The index is sent again after a sandbox has appeared that this leader did not write; because the write of an earlier leader may take
//     effect late, and only the hub knows that its claim was canceled since: TestI2ASandboxThatALateWriteMadeIsNamed. Then not again for
//     30 s, and ever longer: TestI14LateWritesCostFewIndexes.
//
// # Dispatches
//
//   - Each is confirmed at once and gets one answer; a call to reach a sandbox once its tunnel (package podtunnel) is open.
//   - covered_by names a report that shows the claim's effect; because the hub must subtract a Pod once. It precedes the answer. Without
//     credit it follows, even if nothing has changed.
//   - Before that, a member's claiming counts the calls whose claims have a Pod; because the hub deducts a claim until it is answered,
//     and would deduct the Pod that left ready_idle as well: TestCallsOfTheHubWithAPodAreClaiming of package claim, TestInFlight of fleet.
//   - Claims and other calls have separate bounds; because claims must hold up no release: TestClaimsLeaveRoomForOtherCalls.
//   - A claim without a key ends with its stream. If its answer cannot be sent, its sandbox is released.
//   - A claim with a key continues (package claim); its dispatch ends with the stream (I10): TestI10ADispatchEndsWithItsStream.
//   - A dispatch beyond the bound is refused only if its attempt is certainly unknown: TestI2ABusyWorkerRefusesNoAttemptThatItKnows.
package agent
