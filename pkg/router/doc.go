// SPDX-License-Identifier: Apache-2.0

// Package router decides which member can give a caller a sandbox now. It is pure: no clock, no network, no client. The hub uses
// it for all clusters, a worker for its own pools.
//
// In go a Request and an immutable View of one Env. Out come a Decision (Pick: no lock, no allocation) or an Explanation with a
// reason and the data's age for every candidate (Explain). Both judge a candidate by the same function; because an explanation
// must not contradict the pick.
//
// The policies, in order, without weights:
//
//  1. eligible: the member is Active or Saturated, its cluster neither Unreachable nor Quarantined, the candidate not
//     excluded by an earlier refusal, and it matches the request's binding clusters, instance shape and scaling group
//  2. clusters that are LastChoice (silent, no receipt, disconnected) come after all others
//  3. tier: FreshIdle, SaturatedIdle, CanGrow, CanQueue, SaturatedQueue. A request that does not queue takes the idle
//     tiers only; because a member that can grow makes it wait as well
//  4. the caller's order of clusters
//  5. priority, lower first
//  6. most free: idle Pods less claims in flight, or the shortest queue. Each candidate's count is scaled down by up to a
//     quarter at random; because a herd must spread over near-equals and never go to a clearly emptier member
//  7. cluster, then name
//
// A pick looks at every candidate, while the design samples two at random; because an Env has few candidates, they are adjacent
// in memory, and only then is the stated reason true.
//
// Shape: a request's instance type must match exactly, and so must its multiplier if it has one. A request without an instance
// type takes the Env's default, as the member's own cluster states it, and only where the member has a type.
//
// A Missing member has no pool to claim from. An Inconsistent member has a pool that differs from the Env, so that a caller could
// get a sandbox of another kind. Neither is routed to, nor is a member in a state that this build does not know.
package router
