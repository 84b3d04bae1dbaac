// SPDX-License-Identifier: Apache-2.0

// Package catalog writes this cluster's part of the hub's catalogue: SandboxEnvs and SandboxTemplates.
//
// In: calls of the hub. Out: writes under the ServiceAccount atoll-catalog, and an outcome for each object.
//
//	apply.go   one object: its current state, whether the write is allowed, server-side apply; the condition Catalogued
//	remove.go  removes what the catalogue no longer names
//	plan.go    dry runs
//	client.go  the API server, as atoll-catalog
//
// # Rules
//
//   - Server-side apply, by the field manager atoll-catalog, never by force. A field that another manager owns with another value is a
//     conflict, which is reported with its owner, and nothing is written: TestAConflictIsKept.
//   - An object carries the catalogue's id and its revision as an annotation. An older revision is refused (I4), and so is another
//     catalogue's object: TestI4OlderRevisionsAndOtherCatalogues.
//   - Only objects with this catalogue's id are removed (I5), and of these none in whose spec a user owns a field: TestRemove. Pools wind
//     down by their finalizers, so a running sandbox is not ended (I6).
//   - A template stays while an Env of the cluster names it: TestRemove.
//   - A part has only the segment of this cluster; another one is refused (I15).
//   - Without a hub everything stays as it is (I8).
package catalog
