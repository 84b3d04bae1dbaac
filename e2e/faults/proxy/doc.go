// SPDX-License-Identifier: Apache-2.0

// Package proxy is a TCP proxy with the faults of networks.
//
// In go a target address and, at any time, Faults. Out comes an address to dial instead. Each direction of all connections has
// its own faults. A connection that lost bytes never continues: when the loss ends it is reset, as by a peer that has forgotten
// it.
package proxy
