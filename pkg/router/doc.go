// SPDX-License-Identifier: Apache-2.0

// Package router decides which member can give a caller a sandbox now, for the hub and for a worker. It is pure.
//
// In: a Request and a View of one Env. Out: a Decision (Pick, which takes no lock and allocates nothing), or the reason and data age of
// every candidate (Explain). Both use the same function to judge candidates; so they never differ.
//
// The policies, in order, without weights:
//
//  1. eligible: the member is Active or Saturated; its cluster is neither Unreachable nor Quarantined nor barred; it has not refused the
//     request before; and it matches the request's binding clusters, shape and scaling group
//  2. LastChoice clusters (silent, no receipt, disconnected) last
//  3. tier: FreshIdle, SaturatedIdle, CanGrow, CanQueue, SaturatedQueue. A request that does not queue uses idle tiers only; because
//     growth takes time too
//  4. the caller's order of clusters
//  5. priority, lower first
//  6. most free: idle Pods minus claims in flight, or the shortest queue. Counts are reduced by up to a quarter at random; because a herd
//     must spread, but only over near-equal candidates
//  7. cluster, then name
//
// Shape: the instance type, and the multiplier if the request has one, must match exactly. A request without a type uses the default of the
// Env, as reported by the member's cluster, if the member has a type.
//
// Members that never get claims: Missing (no pool), Inconsistent (another kind of pool), unknown states.
//
// A request remembers a small number of refusals, but bars any number of clusters; because a barred cluster may already hold the claim:
// TestRefusalsUnbarNoCluster.
//
// The design samples two candidates. This package looks at all; because there are few, and the reason is accurate only then.
package router
