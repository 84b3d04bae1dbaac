// SPDX-License-Identifier: Apache-2.0

// Package agent is the worker's end of the link: it reports its cluster's state to the hub and carries out the hub's dispatches.
//
// In: segments (package segments), the hub's frames. Out: reports, answers, terminal records, and foreign segments for package sync. It
// runs on the leader. It keeps I1 across a restored etcd, and I5, I8 and I10.
//
//	start.go           a term of leadership
//	uplink.go          one stream
//	metrics.go
//	dispatch.go
//	reach.go           tunnels
//	hello.go           a stream's first message
//	identity.go        the certificate of a stream, and its renewal
//	ended.go           terminal records
//	reporting.go       when reports are sent
//	outbox.go          builds reports
//	segments.go        this cluster's segments, for the local API
//	agent.go
//	foreign.go         messages about other clusters
//	unacknowledged.go  answers that the hub may not have received
//	shutdown.go
//	redirect.go        moves to another replica of the hub
//	restored.go        a restored etcd
//	decide.go          whether the incarnation is raised (pure)
//	incarnation.go
//	ledger.go          the revision of the hub's ledger
//	allotted.go        whether the hub limits growth
//	trace.go
//
// # Rules
//
//   - A leader stores a higher incarnation in the ConfigMap atoll-worker-state before it serves claims, and again when the hub has seen one
//     that is not lower. A process that cannot read the number ends; because 0 would look older: TestIncarnation.
//   - A leader closes its stream to the hub before it stops serving, within 3 s: waiting claims go elsewhere, writes under way get their
//     answers, new calls get a stale session: TestAnOrderlyEndLosesNoAnswer.
//   - A claim without a key whose answer may be lost with its stream is named in the next Hello, until the hub acknowledges a later
//     heartbeat; because only the hub knows whether a caller got the sandbox (orphans.go of package attach). Without that, a lost sandbox
//     would hold its Pod until its first-activity timeout, 5 min by default: TestAnAnswerThatMayBeLostIsNamedAgain.
//   - A redirected stream ends when its calls have ended, or after 2 s; then the worker dials another replica:
//     TestARedirectedStreamEndsAfterItsCalls.
//   - I8: only the first claims of a leader wait for the hub, for a bounded time. Without a hub, the agent needs only the API server:
//     TestI8WithoutAHub.
//
// # A restored etcd (I1)
//
// A Pod that looks idle in a restored etcd may run a sandbox.
//
//   - The hub's Welcome reports whether etcd's revision went back. If it did, all idle Pods are replaced:
//     TestI1AnIdlePodThatChangesIsReplaced. Claims wait for that, however long it takes, and at most 2 s for the Welcome (I8):
//     TestI1NothingIsServedBeforeTheHubsWordOnEtcd, TestI1NothingIsServedBeforeIdlePodsAreReplaced.
//   - During a term, a restore shows in Pods (package inventory), in the revision, or in a heartbeat of the hub; because the revision shows
//     it only until new writes exceed the old one. Claims are refused, idle Pods replaced, and the process ends; because its caches are
//     wrong: TestI1ATermEndsWhenTheHubSaysThatEtcdWasRestored.
//   - A claimed Pod is replaced after its sandbox, never reset.
//   - One gap remains: for a second after the API server is back, a claim can get a Pod that runs a sandbox.
//
// # Allotments (I9)
//
// The hub's Welcome says whether the hub divides maxReplicas over clusters. The agent stores it in the ConfigMap before the stream begins;
// because a leader that starts while such a hub is away must let no group grow: TestI9TheHubsWordOnAllotmentsIsKept. Package rooms keeps
// the rooms.
//
// # The hub's ledger (I2)
//
// The worker remembers the latest revision of the hub's ledger, so that a hub whose store was set back detects it. It takes the revision
// from frames into memory, and stores it in the ConfigMap every 5 min: TestTheLedgersMarkIsRemembered.
//
// # Reports
//
//   - Changes are collected for 100 ms. An edge (ready idle from or to 0, saturated on or off) is sent at once.
//   - At most 16 reports are unacknowledged: TestCredit.
//   - A stream's first report has the key index. It is complete, unless the hub has the view of this term that a hub acknowledged last;
//     then it has only the differences: TestAStreamResumes.
//   - The index is sent again when a sandbox appears that this leader did not write; because the write of an earlier leader may take effect
//     late, and only the hub knows that its claim was canceled since: TestI2ASandboxThatALateWriteMadeIsNamed. The next such index follows
//     after 30 s at the earliest, with a growing pause: TestI14LateWritesCostFewIndexes.
//
// # Dispatches
//
//   - Each dispatch gets a receipt at once and one answer. A call to reach a sandbox gets its answer when its tunnel (package podtunnel) is
//     open.
//   - covered_by names a report that shows the claim's effect; because the hub must subtract a Pod once. The report precedes the answer.
//     Without credit it follows, even if nothing has changed.
//   - Until then, a member's claiming counts the calls whose claims have a Pod; because the hub deducts a claim until it is answered, and
//     would deduct the Pod that left ready_idle as well: TestCallsOfTheHubWithAPodAreClaiming of package claim, TestInFlight of fleet.
//   - Claims and other calls have separate bounds; because claims must hold up no release: TestClaimsLeaveRoomForOtherCalls.
//   - A claim without a key ends with its stream. If its answer cannot be sent, its sandbox is released.
//   - A claim with a key continues (package claim); its dispatch ends with the stream (I10): TestI10ADispatchEndsWithItsStream.
//   - A dispatch beyond the bound is refused only if its attempt is certainly unknown: TestI2ABusyWorkerRefusesNoAttemptThatItKnows.
package agent
