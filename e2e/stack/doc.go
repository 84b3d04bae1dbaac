// SPDX-License-Identifier: Apache-2.0

// Package stack runs Atoll's own programs against planes, the way its users run them: a hub and one worker a cluster, each
// a process of its own, joined by mutual TLS over loopback, every worker under the RBAC of its chart.
//
// In go planes and a folder of binaries; out come addresses, clients and faults: Kill, Stop, Pause and Resume of every
// program. All processes belong to the set of planes and end with it.
package stack
