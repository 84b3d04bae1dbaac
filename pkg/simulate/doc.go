// SPDX-License-Identifier: Apache-2.0

// Package simulate tests autoscaling policies: it drives the worker's Decide over simulated days.
//
// In: a Plan: pools and policies, claims, disturbances. Out: a Run: points over time, every decision with its reason, the claims' outcomes.
//
//	plan.go                                        input
//	state.go                                       a running federation as the start of a run
//	load.go, trace.go, scenarios.go, manifest.go   sources of claims, disturbances and Envs
//	events.go                                      simulated clock
//	world.go, pods.go, claims.go, edits.go         state, Pods, claims, manual edits
//	cache.go                                       the worker's view: late, sometimes missing
//	loop.go                                        the worker: gather, Decide, ask admission, act, report
//	record.go, summary.go, text.go, svg.go         results
//	check.go                                       rules that every run keeps
//
// Rules:
//
//   - Decide, Search, Record and Pick are the product's. The rest models worker/internal's autoscale, env, pool and claim as far as they
//     affect counts and time; changes there need the same here. Simplified: Pods are alike, resets take constant time, no caller retries a
//     refusal.
//   - One plan gives one run, to the byte: TestTheSamePlanGivesTheSameRun. One seed has a stream for each concern, so two policies get the
//     same claims. No map is iterated where order matters; no clock, network or file is used.
//   - I6: no scale-down removes a running sandbox; I9, for one cluster: no growth past a ceiling: TestEveryRunKeepsTheRules,
//     TestAnyPolicyKeepsTheRules.
//   - I10: events and claims are bounded (maxEvents, MaxClaims).
package simulate
