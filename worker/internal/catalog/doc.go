// SPDX-License-Identifier: Apache-2.0

// Package catalog writes this cluster's part of the hub's catalogue: SandboxEnvs and SandboxTemplates.
//
// In go calls of the hub; out go writes under the ServiceAccount atoll-catalog, and an outcome for each object.
//
//	apply.go   one object: what is there, what is allowed, server-side apply; the condition Catalogued
//	remove.go  what the catalogue does not name any more
//	plan.go    dry runs
//	client.go  the API server, as atoll-catalog
//
// # Rules
//
//   - Server-side apply, by the field manager atoll-catalog, never by force. A field that another manager owns with another value is a
//     conflict, which is told with its owner, and nothing is written: TestAConflictIsKept.
//   - An object carries the catalogue's id and its revision as an annotation. An older revision is refused (I4), and so is another
//     catalogue's:
//     TestI4OlderRevisionsAndOtherCatalogues.
//   - Only what carries this catalogue's id is removed (I5), and nothing that a user owns fields of: TestRemove. Pools wind down by their
//     finalizers, so a sandbox that runs is not ended (I6).
//   - A template stays while an Env of the cluster names it: TestRemove.
//   - A part has the segment of this cluster alone; another one is refused (I15).
//   - Without a hub everything stays as it is (I8).
package catalog
