// SPDX-License-Identifier: Apache-2.0

// Package env reconciles the local segment of every SandboxEnv: members become live SandboxPools, and the state of the pools becomes
// status.
//
// In: one cluster's Envs, pools, templates, instance types, pull secrets; calls to refresh. Out: snapshots in status.snapshots; pools that
// match them; status.clusters[local], sums over all segments, and the conditions Ready, TemplateConsistent and AutoscalingActive.
//
//	setup.go
//	refresh.go
//	reconcile.go
//	edit.go         one write of the spec, one of the snapshots
//	act.go
//	gather.go
//	pullsecret.go
//	report.go
//	status.go       (pure)
//	conditions.go   (pure)
//	decide.go       a plan (pure)
//	admission.go    questions to plugins
//	state.go        members that can serve (pure)
//	envdoc.go       the Env as a document
//	matches.go      when each pool was as its snapshot asks
//	metrics.go
//	observation.go  the input of a decision
//	creations.go    turns of pools to be created
//
// # A member's life
//
//   - A member without snapshot and pool is rendered once (package snapshot) and frozen: TestFirstRendering. If no Pod could be created
//     from it, the member waits for another template or config and says why.
//   - The pool is created from the snapshot, and changes by hand are undone: TestDriftIsRepaired, TestScaleSubresourceIsDriftToo. A refused
//     repair shows in Ready: TestARepairThatIsRefusedShows. Events tell an Env's change from drift, by what the Env asked when its pool
//     last matched: TestIntendedChanges.
//   - A newer template, overrides or instance type changes no snapshot and shows in TemplateConsistent, as do a group's different
//     resources: TestNewTemplateChangesNoSnapshot, TestInstanceTypes. Another shape or template makes the member Inconsistent, without
//     claims: TestConfigChangedAfterAdmission.
//   - Refresh renders all but replicas again, after a dry run: TestRefresh, TestRefreshIsRefused, TestARefreshKeepsWhatIsHeld.
//   - Only a pull secret enters a snapshot without a refresh, and stays: TestPullSecret.
//   - A re-applied manifest does not touch status, and an unchanged one changes nothing, by any route, for any tool that compares; because
//     client-side apply replaces lists of the spec whole: TestAnUnchangedManifestSettles, TestI3ReApplyLosesNothing. (A mutating admission
//     policy could put snapshots back into the spec, but is on by default only since Kubernetes 1.36, and kubectl would say "configured".)
//   - A manifest may state a snapshot in a member's metadata and spec, as earlier releases wrote it there. It goes before that in the
//     status, which follows it, as it follows stated replicas: TestSnapshotsOfAnEarlierRelease.
//   - A snapshot that is in neither, as after a restore without status, is taken back from the live pool, replicas included. While that
//     exists, even if it is being deleted, nothing is rendered again: TestMemberAddedAgain.
//   - Package replicas decides whose replicas count: TestReplicas. They are in the member's spec if a manifest states them, else in its
//     snapshot.
//   - A namespace's pools beyond 20 at once and 10 a second wait for their turns; because an editor could make the worker write without
//     end (I14): TestI14PoolsOfANamespaceAreCreatedAtAPace,
//     TestI14WideEnvsPoolsAreCreatedAtAPace.
//   - Of normal Events of a kind one reconcile records four, and one that counts the rest: TestEventsOfManyMembersAreFew.
//   - A pool that no member names is deleted; its finalizer lets sandboxes end: TestRemovedMembersAndSegments.
//   - An Env is left alone if package foreigncontroller pauses it or a pool of it.
//   - Any owner reference to the Env makes a pool owned; because package adoption's is not a controlling one.
//
// # Admission
//
//   - Plugins are asked once, when a member is rendered; the verdict is frozen: TestAdmissionIsFrozen.
//   - A member that gets nothing has no pool: Saturated for want of room, else Missing. The plugin is asked again at the time it named, or
//     after a change: TestRefusedMember.
//   - The question's key is the Env's uid, the member and the rendering; because a repeated question must not reserve twice.
//   - A user's later replicas are not asked about; because a plugin can refuse Pods. Deletion of an orphan is: TestOrphanThatMustNotGo.
//
// # Invariants
//
//   - I3: members are accessed through MembersOf and envDoc.member, which know one cluster id; applied status has only the local segment,
//     and snapshots are of local members: TestI3OnlyTheLocalSegmentIsWritten.
//   - I5: pools are deleted only after a live read of the Env at the observed generation; those of a deleted Env are left to the garbage
//     collector: TestI5StaleCacheDeletesNothing, TestEnvDeleted.
//   - An Env is written as raw JSON; because Go types lose fields. Patches test uid, resourceVersion and the member's place:
//     TestConflictingWrites.
//   - At rest nothing is written: TestNothingIsWrittenAtRest.
//
// # Departures from the design
//
// Annotations docs and pool-docs are not copied into pools; because Envs would repeat them per member. Members that only our manager owns
// are not searched for; because patches never own a member.
package env
