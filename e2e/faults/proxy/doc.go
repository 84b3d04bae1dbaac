// SPDX-License-Identifier: Apache-2.0

// Package proxy is a TCP proxy with a network's faults.
//
// In: a target and, at any time, Faults of each direction. Out: an address to dial. A connection that lost bytes is reset when the loss
// ends, as by a peer that has forgotten it.
package proxy
