// SPDX-License-Identifier: Apache-2.0

// Package env keeps the local segment of every SandboxEnv true: what its members ask for becomes live SandboxPools, and what the
// pools are becomes status.
//
// In: the Envs, pools, templates and instance types of one cluster, and which Envs have a pull secret, from the manager's cache;
// calls to refresh members. Out: snapshots, in spec.clusters[local]; pools that are what the snapshots say;
// status.clusters[local], sums over all segments, and the conditions Ready, TemplateConsistent and AutoscalingActive.
//
//	observation.go  all that one decision is made from
//	metrics.go      metrics
//	envdoc.go       the Env as a document: a member's place, and a JSON patch of it
//	state.go        whether a member can serve (pure)
//	admission.go    what plugins are asked, and what they refused
//	decide.go       a plan of verbs, member by member (pure)
//	conditions.go   the three conditions (pure)
//	status.go       the status (pure)
//	report.go       writes it, if it is news
//	pullsecret.go   whether the Env has one
//	gather.go       the observation, from the cache
//	edit.go         all changes of the Env in one write
//	act.go          carries the plan out
//	reconcile.go    gather, decide, act, report
//	refresh.go      renders members again, on request
//	setup.go        options, watches
//
// Package snapshot makes and compares snapshots, package replicas says who sets replicas, package podtemplate reads templates.
//
// # A member's life
//
//   - A member without a snapshot and without a pool is rendered once, and frozen in its metadata and spec: TestFirstRendering.
//     What no Pod could be made of is not frozen: the member waits, says why, and is rendered again when template or config change.
//   - The pool is made from the snapshot, and what is changed on it by hand is put back: TestDriftIsRepaired,
//     TestScaleSubresourceIsDriftToo. A repair that the API server refuses for good shows in Ready: TestARepairThatIsRefusedShows.
//   - A newer template, other overrides or another instance type change no snapshot; TemplateConsistent says so:
//     TestNewTemplateChangesNoSnapshot, TestInstanceTypes. A config that asks for another shape or template makes the member
//     Inconsistent, which is not routed to: TestConfigChangedAfterAdmission. Members of a group whose resources differ serve, and
//     TemplateConsistent names them.
//   - Refresh renders members again, replicas apart. The API server says first what would change and what it refuses: TestRefresh,
//     TestRefreshIsRefused, TestARefreshKeepsWhatIsHeld. How fast idle Pods follow is package pool's to do.
//   - A pull secret is the one thing that gets into a snapshot later on its own, and stays: TestPullSecret.
//   - A re-applied manifest wipes snapshots out. They are taken back from the live pool, replicas included, and never rendered
//     again while the Env has a pool of the name, even one that is being deleted: TestI3ReApplyLosesNothing, TestMemberAddedAgain.
//   - Replicas are the user's, or the autoscaler's while the scaling group is enabled: TestReplicas.
//   - A pool that no member names is deleted; its finalizer lets sandboxes end on their own terms: TestRemovedMembersAndSegments.
//   - An Env, or one with a pool, that another controller keeps is left alone (package foreigncontroller). A pool of package
//     adoption has a reference that is not a controlling one; owned is what has any.
//
// # Admission
//
//   - Plugins are asked when a member is rendered, and not again: what they add and admit is frozen with the rest.
//     TestAdmissionIsFrozen.
//   - A member that gets nothing has no pool: Saturated for want of room, Missing for anything else. It is asked about again when
//     the plugin said, or once it is changed: TestRefusedMember.
//   - The question has a key of the Env's uid, the member and what it is rendered to; because asking again after a crash must
//     reserve nothing twice.
//   - Replicas that a user sets later are not asked about: a plugin can refuse the Pods. Before an orphan is deleted plugins are
//     asked as well: TestOrphanThatMustNotGo.
//
// # Invariants
//
//   - I3: reads and writes of members go through MembersOf and envDoc.member, which know one cluster id; status is applied with
//     only the local segment in it: TestI3OnlyTheLocalSegmentIsWritten.
//   - I5: pools are deleted only after a live read of the Env at the generation that was decided about, and never for an Env that is
//     gone, whose pools have an owner reference: TestI5StaleCacheDeletesNothing, TestEnvDeleted.
//   - An Env is written as raw JSON only, with the uid; because Go types lose fields (api/v1alpha1). The patch of snapshots tests
//     uid, resourceVersion and who is at the place in the list: TestConflictingWrites.
//   - At rest nothing is written: TestNothingIsWrittenAtRest.
//
// # Departures from the design
//
// A template's documentation (annotations docs and pool-docs) is not copied into pools: it would be in every Env once a member.
// A member that no manager but ours owns is not looked for: patches own fields below a member and never the member, so an apply
// of a manifest without it takes it away whole.
package env
