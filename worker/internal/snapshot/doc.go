// SPDX-License-Identifier: Apache-2.0

// Package snapshot renders the pool of an Env's member: once from a template, frozen in the Env, and applied to the live pool.
//
// In: an Env, its template, the cluster's instance types, a member. Out: a Snapshot, which is the document of the member's
// metadata and spec; the document of a new pool; where a live pool differs, and the patch that repairs it; how a snapshot differs
// from what the Env asks for now.
//
//	differences.go  two documents of a member, field by field
//	origin.go       what a pool was rendered from, and what has changed since
//	render.go       template, overrides and config into a snapshot
//	pullsecret.go   the Env's pull secret in a snapshot
//	stamp.go        a snapshot on a pool: new, drift, repair
//	snapshot.go     Snapshot: frozen, edited by admission plugins, taken back from a live pool
//
// Everything is a function of its arguments.
//
// # Rules
//
//   - Everything that is copied between template, Env and pool is copied as a document, so that fields which this build does not
//     know are kept: TestEditsKeepUnknownFields.
//   - A spec that no Pod could be created from (podtemplate.Check), and annotations that no pool may have, are refused before
//     they are frozen; because the pool could neither be created nor repaired: TestTooManyAnnotationsAreRefused.
//   - A rendered pool gets no ServiceAccount token unless its template says otherwise; a frozen one stays as it is: package env,
//     TestI14PodsGetNoToken.
//   - What a pool allows (package allowed) comes from its snapshot alone; what is added by hand is removed: package env,
//     TestAllowedListsTravel.
//   - Other writers may put labels and annotations on a pool. Two annotations of the pool list the snapshot's
//     (managed-label-keys, managed-annotation-keys), and only those are repaired, removed and taken back: TestDriftIsRepaired.
//   - Labels that tie a pool to its Env are in no snapshot; because they follow the Env: TestConfigChangedAfterAdmission.
package snapshot
