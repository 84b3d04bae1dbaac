// SPDX-License-Identifier: Apache-2.0

// Package router decides which member can give a caller a sandbox now, for hub and worker. It is pure.
//
// In: a Request and a View of one Env. Out: a Decision (Pick: no lock, no allocation) or every candidate's reason and data's age (Explain).
// One function judges for both; so they never differ.
//
// The policies, in order, without weights:
//
//  1. eligible: the member is Active or Saturated, its cluster neither Unreachable nor Quarantined nor barred, it was not refused before,
//     and it matches the request's binding clusters, shape and scaling group
//  2. LastChoice clusters (silent, no receipt, disconnected) last
//  3. tier: FreshIdle, SaturatedIdle, CanGrow, CanQueue, SaturatedQueue. A request that does not queue takes idle tiers only; because
//     growth takes time too
//  4. the caller's order of clusters
//  5. priority, lower first
//  6. most free: idle Pods less claims in flight, or the shortest queue. Counts shrink by up to a quarter at random; because a herd must
//     spread over near-equals only
//  7. cluster, then name
//
// Shape: instance type, and multiplier if the request has one, match exactly. Without a type the request takes the Env's default, as the
// member's cluster states it, where the member has a type.
//
// Never routed to: Missing (no pool), Inconsistent (another kind of pool), unknown states.
//
// A request remembers few refusals, and bars any number of clusters; because a barred one may hold the claim already:
// TestRefusalsUnbarNoCluster.
//
// The design samples two candidates, this package looks at all; because they are few, and only then is the reason true.
package router
