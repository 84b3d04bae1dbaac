// SPDX-License-Identifier: Apache-2.0

// Package manifest reads, checks, divides and compares manifests of SandboxEnvs and SandboxTemplates.
//
// In go JSON objects; out come errors in an API server's words, the part of an Env that one cluster gets, and differences in words. The
// package is pure: no network, no clock.
//
//	schema.go  the CRDs of the chart of workers, and what they refuse
//	object.go  what a manifest says of itself: kind, names, clusters, template
//	part.go    an Env's part in one cluster
//	diff.go    differences, field by field
//	stages.go  the plan of a rollout
//
// # Rules
//
//   - A manifest is checked as an API server does it: by the structural schema, with defaults, list types, metadata and CEL rules. Unknown
//     fields are errors, as with kubectl apply. TestChecks; e2e/api compares the words with those of a real API server.
//   - Nothing is added to a manifest: defaults are for the check alone. An applied manifest owns only what its author wrote.
//   - A part has the cluster's own segment alone, and of the autoscaling groups those that it has members of: the CRD refuses others.
package manifest
