// SPDX-License-Identifier: Apache-2.0

// Package manifest reads, checks, divides and compares manifests of SandboxEnvs and SandboxTemplates.
//
// In: JSON objects. Out: errors in the wording of an API server, the part of an Env that one cluster gets, and descriptions of differences.
// The package is pure: no network, no clock.
//
//	schema.go  the CRDs in the worker's chart, and what they reject
//	object.go  fields of a manifest: kind, names, clusters, template
//	part.go    an Env's part in one cluster
//	diff.go    differences, field by field
//	stages.go  the plan of a rollout
//
// # Rules
//
//   - A manifest is checked as by an API server: with the structural schema, defaults, list types, metadata and CEL rules. Unknown fields
//     are errors, as with kubectl apply. TestChecks; e2e/api compares the wording with that of a real API server.
//   - Nothing is added to a manifest: defaults are used only for the check. An applied manifest owns only what its author wrote.
//   - A part contains only the cluster's own segment, and only the autoscaling groups in which it has members; because the CRD rejects
//     others.
package manifest
