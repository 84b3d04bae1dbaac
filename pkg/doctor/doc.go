// SPDX-License-Identifier: Apache-2.0

// Package doctor reports what keeps a federation from serving callers, since when, and how to fix it.
//
// In: a snapshot of the hub and clusters (package verify), and of what is installed in reachable clusters (Look). Out: diagnoses, worst
// first, each with a typed reason and a command. Diagnose is pure.
//
//   - One clock measures each duration: the hub's monotonic clock for clusters, the API server's for objects (I11).
//   - Expiry is compared with the hub's clock; because the hub enforces it.
//   - The hub reports clusters, members, its store, certificates and keys. Clusters report conditions, permissions, installed objects and
//     Pods. If a source is missing, its diagnoses are omitted.
package doctor
