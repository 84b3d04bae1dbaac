// SPDX-License-Identifier: Apache-2.0

// Package stack runs Atoll, a hub and one worker a cluster joined by mutual TLS, the way its users run it.
//
// In go clusters; out come addresses, clients and faults: every program can be killed, stopped, frozen and started again,
// every API server frozen. There are two ways, and who has a Stack need not know which one it is:
//
//	Start    on planes: programs are processes of this machine, each worker under the RBAC of its chart. They belong to
//	         the set of planes and end with it.
//	Install  on kind: programs are containers of images that were built here, installed by helm from the charts. The
//	         workers reach the hub over the clusters' network; callers reach it with TLS and an API key, and a worker's
//	         local API, which listens on its Pod's loopback, through a forwarded port.
package stack
