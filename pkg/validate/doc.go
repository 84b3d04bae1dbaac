// SPDX-License-Identifier: Apache-2.0

// Package validate says what is wrong with a request of the public API, for hub and worker alike: a request that one of them
// takes the other one takes as well.
//
// In go messages of atoll.sandbox.v1; out come Faults, each with the field, its value cut short, and what would be valid. All
// that is wrong is told at once. Nothing here knows who asks or what there is: that is for the caller.
package validate
