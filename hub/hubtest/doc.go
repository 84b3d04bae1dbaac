// SPDX-License-Identifier: Apache-2.0

// Package hubtest runs the hub in a test's process: fleet, attach, claims and link, wired as in hub/run.go, without the public API; because
// that has no state. The test supplies clock, listener, store and randomness.
//
// A Disk outlives its hubs, and passes package store's conformance suite. An unacknowledged write may or may not be on it. Open takes the
// disk from the previous process; because a killed process that is still exiting must not write.
package hubtest
