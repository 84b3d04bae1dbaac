// SPDX-License-Identifier: Apache-2.0

// Package validate validates requests of the public API, in the same way for hub and worker.
//
// In: messages of atoll.sandbox.v1. Out: all Faults, each with the field, its truncated value, and what is valid. It does not check
// authorization or existence.
package validate
