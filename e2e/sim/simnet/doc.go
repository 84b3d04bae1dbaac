// SPDX-License-Identifier: Apache-2.0

// Package simnet is a network in memory, for connections inside a testing/synctest bubble.
//
// In go hosts by name; out come net.Listener and net.Conn between them, whose bytes arrive after a delay drawn from a seed.
// A Path, the two directions between two hosts, can be cut, stalled (half-open: bytes leave and do not arrive) and
// throttled; a host can be reset, as by a process that was killed.
//
// What it keeps of TCP: bytes arrive in order or not at all; a connection that breaks tells both ends, a stalled one tells
// nobody; what a stall held back arrives once it ends. What it leaves out: limits of buffers. A write never blocks, so that
// nobody waits with a lock held, which would stop the clock of the bubble; HTTP/2's own windows bound what is under way.
//
// Every direction of every connection draws its delays from a source of its own, seeded by the network's seed, the two names
// and the connection's number, so that what one connection carries does not change another's.
package simnet
