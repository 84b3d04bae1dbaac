// SPDX-License-Identifier: Apache-2.0

// Package hubtest runs the hub inside a test's process: fleet, attach, claims and link, wired as hub/run.go wires them. The test
// supplies the clock, the listener, the store and the source of randomness.
//
// It exists for tests that kill and restart a hub a thousand times, on simulated clocks and networks. It leaves out the public
// API in front of package claims; because what that adds (REST, callers' keys) keeps no state.
//
// A Disk is the disk of such a hub. It outlives the processes that open it, and passes the conformance suite of package store. A
// write that was not acknowledged before a kill may be on the Disk or not. A full, slow, damaged or empty disk is a method each.
// Opening a Disk takes it from the previous process; because a killed process, whose goroutines are still exiting, must not
// write.
package hubtest
