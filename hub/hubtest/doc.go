// SPDX-License-Identifier: Apache-2.0

// Package hubtest runs the hub inside a test's process: fleet, attach, claims and link, wired as hub/run.go wires them, on a
// clock, a listener, a store and a source of randomness that the test gives.
//
// It exists for tests that have a hub killed and started again a thousand times, on simulated clocks and networks. The
// public API in front of package claims is left out: what it adds (REST, keys of callers) keeps no state.
//
// A Disk is the disk of such a hub. It outlives the processes that open it, and passes the conformance suite of package
// store. What a process had not been told to be durable when it was killed may be there or not; a full, slow, damaged or
// empty disk is a method each. Whoever opens a Disk takes it from the process that had it before, so that a process which
// was killed, and whose goroutines are still on their way out, writes nothing any more.
package hubtest
