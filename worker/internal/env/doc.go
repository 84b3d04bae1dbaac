// SPDX-License-Identifier: Apache-2.0

// Package env reconciles the local segment of every SandboxEnv: it creates a SandboxPool for each member and reports the state of the pools
// in the Env's status.
//
// In: one cluster's Envs, pools, templates, instance types, pull secrets; calls to refresh. Out: snapshots in status.snapshots; pools that
// match them; status.clusters[local], sums over all segments, and the conditions Ready, TemplateConsistent and AutoscalingActive.
//
//	setup.go
//	refresh.go
//	reconcile.go
//	edit.go         one write of the spec, and one of the snapshots
//	act.go
//	gather.go
//	pullsecret.go
//	report.go
//	status.go       (pure)
//	conditions.go   (pure)
//	decide.go       a plan (pure)
//	admission.go    questions to plugins
//	state.go        whether a member can serve (pure)
//	envdoc.go       the Env as a document
//	matches.go      what the Env asked when each pool last matched its snapshot
//	metrics.go
//	observation.go  the input of a decision
//	creations.go    limits the rate of pool creations
//
// # A member's life
//
//   - A member without snapshot and pool is rendered once (package snapshot) and frozen: TestFirstRendering. If no Pod could be created
//     from it, the member waits for another template or config, and its message says why.
//   - The pool is created from the snapshot, and manual changes are undone: TestDriftIsRepaired, TestScaleSubresourceIsDriftToo. A refused
//     repair shows in Ready: TestARepairThatIsRefusedShows. Events distinguish a change of the Env from drift by comparing the Env with
//     what it asked when the pool last matched: TestIntendedChanges.
//   - A newer template, override or instance type changes no snapshot. It shows in TemplateConsistent, as do unequal resources within a
//     scaling group: TestNewTemplateChangesNoSnapshot, TestInstanceTypes. Another shape or template makes the member Inconsistent; it then
//     gets no claims: TestConfigChangedAfterAdmission.
//   - Refresh renders a member again, except its replicas, after a dry run: TestRefresh, TestRefreshIsRefused, TestARefreshKeepsWhatIsHeld.
//   - Only a pull secret enters a snapshot without a refresh, and it stays there: TestPullSecret.
//   - Applying a manifest again does not touch the status. An unchanged manifest changes nothing, by any route and with any tool that
//     compares; because client-side apply replaces lists of the spec whole: TestAnUnchangedManifestSettles, TestI3ReApplyLosesNothing. (A
//     mutating admission policy could put snapshots back into the spec, but is on by default only since Kubernetes 1.36, and kubectl would
//     say "configured".)
//   - A manifest may state a snapshot in a member's metadata and spec, where earlier releases wrote it. It takes precedence over the one in
//     the status, which follows it, as it follows stated replicas: TestSnapshotsOfAnEarlierRelease.
//   - A snapshot that is in neither place, as after a restore without status, is taken back from the live pool, replicas included. While
//     that pool exists, even while it is being deleted, the member is not rendered again: TestMemberAddedAgain.
//   - Package replicas decides whose replicas count: TestReplicas. They are in the member's spec if a manifest states them, else in its
//     snapshot.
//   - At most 20 pools of a namespace are created at once, and 10 a second; more wait; because an editor could make the worker
//     write without end (I14): TestI14PoolsOfANamespaceAreCreatedAtAPace, TestI14WideEnvsPoolsAreCreatedAtAPace.
//   - One reconcile records at most four normal Events of a kind, and one that counts the rest: TestEventsOfManyMembersAreFew.
//   - A pool that no member names is deleted; its finalizer lets sandboxes end: TestRemovedMembersAndSegments.
//   - An Env is left alone if package foreigncontroller pauses it or one of its pools.
//   - Any owner reference to the Env makes a pool owned; because the reference that package adoption sets is not a controlling one.
//
// # Admission
//
//   - Plugins are asked once, when a member is rendered; the verdict is frozen: TestAdmissionIsFrozen.
//   - A refused member has no pool. It is Saturated if there is no room, else Missing. The plugin is asked again at the time it named, or
//     after a change: TestRefusedMember.
//   - The question's key is the Env's uid, the member and the rendering; because a repeated question must not reserve twice.
//   - Plugins are not asked when a user changes replicas later; because a plugin can refuse Pods. They are asked before an orphan is
//     deleted: TestOrphanThatMustNotGo.
//
// # Invariants
//
//   - I3: members are accessed through MembersOf and envDoc.member, which know one cluster id; applied status has only the local segment,
//     and snapshots are of local members: TestI3OnlyTheLocalSegmentIsWritten.
//   - I5: pools are deleted only after a live read of the Env at the observed generation; the garbage collector deletes those of a deleted
//     Env: TestI5StaleCacheDeletesNothing, TestEnvDeleted.
//   - An Env is written as raw JSON; because Go types lose fields. Patches test uid, resourceVersion and the member's place:
//     TestConflictingWrites.
//   - At rest nothing is written: TestNothingIsWrittenAtRest.
//
// # Departures from the design
//
// The annotations docs and pool-docs are not copied into pools, because Envs would repeat them per member. There is no search for members
// that only our manager owns, because patches never own a member.
package env
