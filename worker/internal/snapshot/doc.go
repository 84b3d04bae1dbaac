// SPDX-License-Identifier: Apache-2.0

// Package snapshot renders a member's pool once from a template, as a snapshot that is frozen in the Env and applied to the live pool. It
// is pure.
//
// In: an Env, its template, instance types, a member. Out: a Snapshot of metadata and spec; a new pool; a live pool's drift and repair; the
// differences between a snapshot and what the Env asks for now.
//
//	differences.go  two documents, field by field
//	origin.go
//	render.go       template, overrides and config into a snapshot
//	pullsecret.go
//	stamp.go        applies a snapshot to a pool: new, drift, repair
//	snapshot.go     a snapshot: frozen, edited, taken back
//
// # Rules
//
//   - Everything is copied as a document; because this build may not know all fields: TestEditsKeepUnknownFields.
//   - Faulty specs (podtemplate.Check) and forbidden annotations are rejected before they are frozen; because the pool could neither be
//     created nor repaired: TestTooManyAnnotationsAreRefused.
//   - A rendered pool gets no ServiceAccount token unless its template asks for one; a frozen pool stays as it is: TestI14PodsGetNoToken.
//   - What a pool allows (package allowed) comes only from its snapshot: TestAllowedListsTravel.
//   - Only labels and annotations that managed-label-keys and managed-annotation-keys list are repaired, removed and taken back; because
//     others may write more: TestDriftIsRepaired.
//   - Labels that tie a pool to its Env are in no snapshot; because they follow the Env: TestConfigChangedAfterAdmission.
package snapshot
