// SPDX-License-Identifier: Apache-2.0

// Package env keeps the local segment of every SandboxEnv true: what its members ask for becomes live SandboxPools, and
// what the pools are becomes status.
//
// What goes in: SandboxEnvs, SandboxPools and SandboxTemplates of one cluster, and which Envs have a pull secret, through
// the manager's cache; the instance types of package instances; calls to refresh members. What comes out: pools that are what their members' snapshots say; the snapshots themselves, in spec.clusters[local]; the segment
// status.clusters[local], sums over all segments, and the conditions Ready, TemplateConsistent, AutoscalingActive.
//
//	gather ─▶ decide ─▶ act ─▶ report
//
// gather collects an observation, decide makes a plan of it, act carries the plan out, report writes status if it is
// news. decide, render, stamp, state, status and conditions are functions of their arguments alone. The steps are in the
// files of those names.
//
// # A member's life
//
// A member without a snapshot and without a pool is rendered once, from template, overrides and config, and frozen: the
// result goes into the member's metadata and spec. What no Pod could be made of (Faults) is not frozen: the member waits, says
// why, and is rendered again when template or config change. A pool is then made from the snapshot, and whatever is changed
// on it by hand is put back. A newer template, other overrides or another instance type change no snapshot; TemplateConsistent
// says so, member by member. A config that asks for another shape or template makes the member Inconsistent, which is not
// routed to.
//
// Refresh (refresh.go) renders members again on that same way, replicas apart, and freezes the result. The API server is
// asked first what the Env would be then: that tells what would change, and what is refused, before anything does. How fast
// idle Pods follow is an annotation in the snapshot, and package pool's to do.
//
// The Env's pull secret is the one thing that gets into a snapshot later on its own; see pullsecret.go.
//
// Users re-apply whole manifests, which wipes snapshots out. Such a snapshot is taken back from the live pool, with its
// replicas, and never rendered again: as long as the Env has a pool of the member's name, even one that is being
// deleted, that pool says what the member is. So a member that is removed and added again is made anew only once its old
// pool has wound down.
//
// Replicas are the user's, or the autoscaler's while the member's scaling group is enabled. For a lost snapshot that
// decides between the manifest's number, if it has one, and the live pool's. If an old object is put back whole, its
// numbers arrive together with a snapshot; then managed fields tell that it was not us who set them. The live pool's number
// is put back then, once: a value that comes back within five minutes, or a third one, is let stand (contest.go). The
// autoscaler itself is package autoscale, and writes through SetReplicas.
//
// A repair that the API server refuses for good is told in Ready, which is False then: such a member serves, and follows neither
// its snapshot nor its replicas.
//
// A pool that no member names is deleted; its finalizer lets running sandboxes end on their own terms.
//
// # Admission
//
// Plugins (package admission) are asked when a member is rendered, and never again: what they add to the pool and the
// replicas that they admit are frozen with the rest. A member that gets nothing has no pool; it is Saturated for want of
// room, and Missing for anything else, and is asked about again when the plugin said, or as soon as it is changed. The
// question has a key, made from the Env's uid, the member and what it is rendered to, so that asking again after a crash
// reserves nothing twice. Replicas that a user sets later are not asked about: they are his decision, and a plugin can
// refuse the Pods. What grows them for us, the autoscaler, asks for itself. Before an orphan is deleted plugins are asked as
// well.
// A pool may have become a member's after it was made: package adoption makes an Env for it, snapshot included, and puts a
// reference on it that is not a controlling one. Owned is what has any reference to the Env.
//
// An Env, or one with a pool, that another controller keeps is left alone (package foreigncontroller).
//
// # Invariants
//
// I3, a worker's reconcilers write no segment but their own, and a user's re-apply loses nothing: all reads and writes
// of members go through observation.members and envDoc.member, which know one cluster id; status is applied with only
// the local segment in it, so that foreign ones stay with their manager.
//
// I5, nothing is deleted because something was missing: pools are deleted only after a live read of the Env at the very
// generation that was decided about, and not at all for an Env that is gone, whose pools have an owner reference.
//
// # Hazards
//
// An Env is written as raw JSON only, with the uid: see api/v1alpha1 on what Go types lose. The write of snapshots is a
// JSON patch that tests uid, resourceVersion, and who is at the place in the list. Whatever is copied between template,
// Env and pool is copied as a document, so that fields that this build does not know get there.
//
// A pool's labels and annotations may be others' as well. Which of them are the snapshot's is listed in two annotations
// of the pool (managed-label-keys, managed-annotation-keys); only those are repaired, removed and taken back.
//
// # Where it departs from the design's mechanism
//
// Members of one group that were made of different resources, at different times, are
// told of in TemplateConsistent and serve; the schema keeps their configs the same. A template's documentation
// (annotations docs and pool-docs) is not copied into pools: it would be in every Env, once a member. A member that no manager but ours
// owns is not looked for: snapshots are written by patch, which owns fields below a member and never the member itself,
// so that server-side apply of a manifest without it takes it away whole.
package env
