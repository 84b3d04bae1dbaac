// SPDX-License-Identifier: Apache-2.0

// Package simnet is a network in memory, for connections inside a testing/synctest bubble.
//
// In go hosts by name; out come net.Listener and net.Conn between them. Bytes arrive after a delay drawn from a seed. A Path
// (both directions between two hosts) can be cut, stalled (half-open: bytes leave and do not arrive) and throttled. A host can
// be reset, as if its process was killed.
//
// It keeps these properties of TCP: bytes arrive in order or not at all; a broken connection fails at both ends; a stalled
// connection fails at neither; bytes held by a stall arrive when it ends. It has no buffer limits: a write never blocks;
// because a writer blocked with a lock held would stop the bubble's clock. HTTP/2's own windows bound the bytes in flight.
//
// Each direction of each connection draws its delays from its own source, seeded by the network's seed, the two names and the
// connection's number; so one connection's traffic does not change another's delays.
package simnet
