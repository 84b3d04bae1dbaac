// SPDX-License-Identifier: Apache-2.0

// Package validate validates requests of the public API, alike for hub and worker.
//
// In: messages of atoll.sandbox.v1. Out: all Faults, each with the field, its value cut short, and what is valid. Not: authorization and
// existence.
package validate
