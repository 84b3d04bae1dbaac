// SPDX-License-Identifier: Apache-2.0

// Package doctor reports what is wrong with a federation, since when, and how to fix it.
//
// In go a look at hub and clusters (package verify) and, for clusters whose API server is reachable, what is installed there
// (Look). Out come diagnoses, worst first, each with a typed reason and a command to run. Diagnose is pure. Package verify
// reports broken invariants, which are defects; this package reports what keeps callers from being served, which mostly is not
// a defect.
//
//   - Each duration is measured by one clock: the hub's monotonic clock for clusters, the API server's for objects in a cluster
//     (I11).
//   - Expiry of certificates and keys is compared with the hub's clock; because the hub enforces it.
//   - Only the hub reports clusters, members by state and count, its store, certificates and keys. Only the clusters report
//     conditions, permissions, installed files and Pods. Without a source, its diagnoses are left out.
package doctor
