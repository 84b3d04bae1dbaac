// SPDX-License-Identifier: Apache-2.0

// Package hubtest runs the hub inside a test's process: fleet, attach, claims and link, wired as in hub/run.go, without the public API;
// because that keeps no state. The test supplies clock, listener, store and randomness.
//
// A Disk outlives its hubs, and passes package store's conformance suite. An unacknowledged write may be on it or not. Opening takes it
// from the previous process; because a killed one, still exiting, must not write.
package hubtest
