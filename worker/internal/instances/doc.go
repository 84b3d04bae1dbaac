// SPDX-License-Identifier: Apache-2.0

// Package instances knows the instance types that a cluster offers: names for what a Pod gets, which Envs ask for by name
// and multiply.
//
// What goes in: the ConfigMap atoll-instance-types in the worker's namespace. Each key of its data is a type, the value is
// YAML:
//
//	data:
//	  small: |
//	    requests: {cpu: 500m, memory: 1Gi}
//	    limits: {cpu: "1", memory: 1Gi}
//	    multiplier: {min: 1, max: 8}
//
// What comes out: the resources of a type times a multiplier, or an error that names field, value and what is valid. All of
// it is multiplied, requests as well as limits. The multiplier's range begins at 1 if min is left out, and is open if max is.
//
// catalogue.go is pure; watch.go keeps a Catalogue current. A type that cannot be read spoils no other: it is an error for
// whoever asks for it.
//
// A catalogue is read when a member is rendered and never again: what a pool has does not follow it (see package env).
package instances
