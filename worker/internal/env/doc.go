// SPDX-License-Identifier: Apache-2.0

// Package env reconciles the local segment of every SandboxEnv: members become live SandboxPools, and the state of the pools
// becomes status.
//
// In: the Envs, pools, templates and instance types of one cluster, and which Envs have a pull secret, from the manager's cache;
// calls to refresh members. Out: snapshots, in spec.clusters[local]; pools that match their snapshots; status.clusters[local],
// sums over all segments, and the conditions Ready, TemplateConsistent and AutoscalingActive.
//
//	setup.go        options, watches
//	refresh.go      renders members again, on request
//	reconcile.go    gather, decide, act, report
//	edit.go         all changes of the Env in one write
//	act.go          carries the plan out
//	gather.go       the observation, from the cache
//	pullsecret.go   whether the Env has a pull secret
//	report.go       writes the status if it changed
//	status.go       the status (pure)
//	conditions.go   the three conditions (pure)
//	decide.go       a plan of verbs, member by member (pure)
//	admission.go    what plugins are asked, and what they refused
//	state.go        whether a member can serve (pure)
//	envdoc.go       the Env as a document: a member's place, and a JSON patch of it
//	metrics.go      metrics
//	observation.go  the input of one decision
//
// Package snapshot makes and compares snapshots, package replicas decides between the user's and the autoscaler's replicas,
// package podtemplate reads templates.
//
// # A member's life
//
//   - A member without a snapshot and without a pool is rendered once, and frozen in its metadata and spec: TestFirstRendering. A
//     snapshot that no Pod could be created from is not frozen: the member waits, reports why, and is rendered again when
//     template or config change.
//   - The pool is created from the snapshot, and changes by hand are undone: TestDriftIsRepaired, TestScaleSubresourceIsDriftToo.
//     A repair that the API server refuses permanently shows in Ready: TestARepairThatIsRefusedShows.
//   - A newer template, other overrides or another instance type change no snapshot; TemplateConsistent reports them:
//     TestNewTemplateChangesNoSnapshot, TestInstanceTypes. A config that asks for another shape or template makes the member
//     Inconsistent, and it gets no claims: TestConfigChangedAfterAdmission. Members of a group whose resources differ serve, and
//     TemplateConsistent names them.
//   - Refresh renders members again, replicas apart. The API server first reports what would change and what it refuses:
//     TestRefresh, TestRefreshIsRefused, TestARefreshKeepsWhatIsHeld. Package pool decides how fast idle Pods follow.
//   - Only a pull secret gets into an existing snapshot without a refresh, and stays: TestPullSecret.
//   - A re-applied manifest wipes snapshots out. They are taken back from the live pool, replicas included, and are not rendered
//     again while the Env has a pool of the name, even one that is being deleted: TestI3ReApplyLosesNothing,
//     TestMemberAddedAgain.
//   - Replicas are the user's, or the autoscaler's while the scaling group is enabled: TestReplicas.
//   - A pool that no member names is deleted; its finalizer lets sandboxes end on their own terms: TestRemovedMembersAndSegments.
//   - An Env that another controller keeps, or one of whose pools it keeps, is left alone (package foreigncontroller).
//   - A pool counts as owned with any owner reference to the Env; because that of package adoption is not a controlling one.
//
// # Admission
//
//   - Plugins are asked once, when a member is rendered; what they add and admit is frozen with the rest: TestAdmissionIsFrozen.
//   - A member that gets nothing has no pool: it is Saturated for want of room, Missing for anything else. It is asked about
//     again at the time that the plugin named, or once it has changed: TestRefusedMember.
//   - The question has a key of the Env's uid, the member and the rendered result; because asking again after a crash must not
//     reserve twice.
//   - Replicas that a user sets later are not asked about; because a plugin can refuse the Pods. Plugins are also asked before an
//     orphan is deleted: TestOrphanThatMustNotGo.
//
// # Invariants
//
//   - I3: reads and writes of members go through MembersOf and envDoc.member, which know one cluster id; status is applied with
//     only the local segment in it: TestI3OnlyTheLocalSegmentIsWritten.
//   - I5: pools are deleted only after a live read of the Env at the observed generation, and never for a deleted Env, whose
//     pools have an owner reference: TestI5StaleCacheDeletesNothing, TestEnvDeleted.
//   - An Env is written as raw JSON only, with the uid; because Go types lose fields (api/v1alpha1). The patch of snapshots tests
//     uid, resourceVersion and the member at the place in the list: TestConflictingWrites.
//   - At rest nothing is written: TestNothingIsWrittenAtRest.
//
// # Departures from the design
//
// A template's documentation (annotations docs and pool-docs) is not copied into pools; because every Env would have it once per
// member. Members that only our manager owns are not searched for: patches own fields below a member and never the member, so an
// apply of a manifest without the member removes it whole.
package env
