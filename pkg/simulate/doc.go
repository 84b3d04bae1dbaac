// SPDX-License-Identifier: Apache-2.0

// Package simulate tests autoscaling policies: it drives the worker's own Decide over simulated days in seconds.
//
// In goes a Plan: pools and their policies (ReadEnv reads them from a manifest), claims (from a Load, a Scenario or ReadTrace),
// the cluster's behaviour, and disturbances. Out comes a Run: points over time, every decision with its reason, and the outcome
// of the claims. WriteSVG, WriteText and WriteTable render it; Check and its neighbours judge it.
//
//	plan.go       the input of a run
//	load.go, trace.go, scenarios.go, manifest.go   sources of claims, disturbances and Envs
//	events.go     the simulated clock
//	world.go      the state of a run
//	pods.go       Pods, and the pool reconciler as far as it affects counts
//	claims.go     claims: routed by pkg/router as in a hub, then served, waiting or refused
//	edits.go      manual edits, reverted or kept
//	cache.go      the worker's view of all that: late, and sometimes missing
//	loop.go       the worker: gather, Decide, ask admission, act, report
//	record.go, summary.go, text.go, svg.go         the results
//	check.go      the rules that every run keeps
//
// # What is real and what is a model
//
// Decide, Search, Record and the router's Pick are the product's, with its types. The rest models packages autoscale, env, pool
// and claim of worker/internal as far as they affect counts and time: the same gates on missing cache entries, the same
// compare-and-swap write, the same windows. A change to a rule there needs the same change here. The model simplifies: Pods are
// alike; resetting or replacing a sandbox's Pod always takes the same time; no caller retries after a refusal.
//
// # The same plan gives the same run
//
// The output is identical to the byte; held by TestTheSamePlanGivesTheSameRun.
//
//   - One seed drives all randomness, with a separate stream for each concern; so two policies get the same claims.
//   - No map is iterated where order matters. Random durations are whole milliseconds.
//   - The package uses no clock, no network and no file.
//
// # Invariants
//
//   - I6: no running sandbox is removed for a scale-down; held by TestEveryRunKeepsTheRules and TestAnyPolicyKeepsTheRules.
//   - I9, for one cluster: no growth past a ceiling; held by the same tests. Check also tests the policy's own promises.
//   - I10: events and claims of a run are bounded (maxEvents, MaxClaims).
package simulate
