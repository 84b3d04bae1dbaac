// SPDX-License-Identifier: Apache-2.0

// Package stack runs Atoll as users run it: a hub and one worker for each cluster, joined by mutual TLS.
//
// In go clusters; out come addresses, clients and faults. Every program can be killed, stopped, frozen and started again; every
// API server can be frozen. A Stack behaves the same however it was created:
//
//	Start    on planes: programs are processes of this machine, each worker under the RBAC of its chart. They belong to
//	         the set of planes and end with it.
//	Install  on kind: programs are containers of images built here, installed by helm from the charts. The workers reach
//	         the hub over the clusters' network. Callers reach it with TLS and an API key, and a worker's local API, which
//	         listens on its Pod's loopback, through a forwarded port.
package stack
