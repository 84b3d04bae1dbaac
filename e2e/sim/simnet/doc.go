// SPDX-License-Identifier: Apache-2.0

// Package simnet is a network in memory, for connections inside a testing/synctest bubble.
//
// In: hosts by name. Out: net.Listener and net.Conn between them. A Path (between two hosts) can be cut, stalled (half-open) and throttled;
// a host reset, as if killed.
//
//   - As with TCP, bytes arrive in order or not at all; a broken connection fails at both ends, a stalled one at neither; stalled bytes
//     arrive later.
//   - A write never blocks; because a blocked writer with a lock would stop the bubble's clock. HTTP/2's windows bound the bytes.
//   - Each direction of a connection draws delays from its own seed; so no traffic changes another's.
package simnet
