// SPDX-License-Identifier: Apache-2.0

// Package instances provides a cluster's instance types: named resources of a Pod, which Envs ask for and multiply.
//
// In: the ConfigMap atoll-instance-types in the worker's namespace; each key is a type, its value YAML as under instanceTypes in
// charts/worker/values.yaml. Out: the resources of a type times a multiplier, or an error with field, value and what is valid.
//
//	catalogue.go  types and multipliers (pure)
//	watch.go
//
// # Rules
//
//   - Requests and limits are both multiplied. multiplier.min defaults to 1; without max the range is open: TestResolve.
//   - A type that cannot be parsed affects no other: TestParseErrors.
//   - A later catalogue does not affect existing pools; because types are read when a member is rendered.
package instances
