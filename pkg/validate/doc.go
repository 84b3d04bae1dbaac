// SPDX-License-Identifier: Apache-2.0

// Package validate validates requests of the public API, for hub and worker: both accept the same requests.
//
// In go messages of atoll.sandbox.v1. Out come Faults, each with the field, its value cut short, and what is valid. All faults
// are returned at once. Authorization and the existence of objects are the caller's to check.
package validate
