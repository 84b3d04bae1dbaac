// SPDX-License-Identifier: Apache-2.0

// Package instances has the instance types that a cluster offers: named resources of a Pod, which Envs ask for by name and
// multiply.
//
// In: the ConfigMap atoll-instance-types in the worker's namespace. Each key of its data is a type, the value is YAML:
//
//	data:
//	  small: |
//	    requests: {cpu: 500m, memory: 1Gi}
//	    limits: {cpu: "1", memory: 1Gi}
//	    multiplier: {min: 1, max: 8}
//
// Out: the resources of a type times a multiplier, or an error that names the field, the value and what is valid.
//
//	catalogue.go  types and multipliers (pure)
//	watch.go      keeps a Catalogue current
//
// # Rules
//
//   - Requests and limits are both multiplied. multiplier.min defaults to 1; without max the range is open: TestResolve.
//   - A type that cannot be parsed does not affect the others; only asking for it fails: TestParseErrors.
//   - A catalogue is read only when a member is rendered. Later changes do not reach existing pools (package env).
package instances
