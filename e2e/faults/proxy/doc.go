// SPDX-License-Identifier: Apache-2.0

// Package proxy stands between two programs and does to their TCP connections what networks do.
//
// In go a target address and, at any time, Faults; out comes an address to dial instead. Each direction of all connections
// has faults of its own. A connection that lost bytes never goes on as if nothing had happened: when the loss ends it is
// reset, as by a peer that knows nothing of it any more.
package proxy
