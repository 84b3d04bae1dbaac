// SPDX-License-Identifier: Apache-2.0

// Package simulate tests autoscaling policies: it runs the worker's Decide over simulated days.
//
// In: a Plan with pools and policies, claims and disturbances. Out: a Run with points over time, every decision with its reason, and the
// outcomes of the claims.
//
//	plan.go                                        input
//	state.go                                       a running federation as the start of a run
//	load.go, trace.go, scenarios.go, manifest.go   sources of claims, disturbances and Envs
//	events.go                                      simulated clock
//	world.go, pods.go, claims.go, edits.go         state, Pods, claims, manual edits
//	cache.go                                       the worker's view: late, sometimes incomplete
//	loop.go                                        the worker: gather, Decide, ask admission, act, report
//	record.go, summary.go, text.go, svg.go         results
//	check.go                                       rules that every run keeps
//
// Rules:
//
//   - Decide, Search, Record and Pick are the production code. The rest models worker/internal's autoscale, env, pool and claim as far as
//     they affect counts and time; changes there must be repeated here. Simplifications: Pods are alike, resets take constant time, and no
//     caller retries a refusal.
//   - The same plan gives the same run, to the byte: TestTheSamePlanGivesTheSameRun. One seed has a random stream for each concern, so that
//     two policies get the same claims. No map is iterated where order matters; no clock, network or file is used.
//   - I6: no scale-down removes a running sandbox; I9, for one cluster: no growth beyond a ceiling: TestEveryRunKeepsTheRules,
//     TestAnyPolicyKeepsTheRules.
//   - I10: events and claims are bounded (maxEvents, MaxClaims).
package simulate
