// SPDX-License-Identifier: Apache-2.0

// Package simulate tries autoscaling policies: it drives the same Decide as a worker, over simulated days in seconds.
//
// In goes a Plan: pools and their policies (ReadEnv takes them from a manifest), claims (a Load, a Scenario or ReadTrace makes
// them), how the cluster behaves, and what goes wrong when. Out comes a Run: points over time, every decision with its reason,
// and what became of the claims; WriteSVG, WriteText and WriteTable show it, Check and its neighbours judge it.
//
//	plan.go       what a run follows from
//	load.go, trace.go, scenarios.go, manifest.go   where claims, disturbances and Envs come from
//	events.go     the simulated clock
//	world.go      a run under way
//	pods.go       Pods, and the pool reconciler as far as numbers go
//	claims.go     claims: routed by pkg/router as a hub would, served, waiting, refused
//	edits.go      edits by hand, undone or let stand
//	cache.go      what the worker sees of all that: late, and now and then not at all
//	loop.go       the worker: gather, Decide, ask admission, act, report
//	record.go, summary.go, text.go, svg.go         what came of it
//	check.go      what must hold
//
// # What is the worker's own, and what is a model
//
// Decide, Search, Record and the router's Pick are the real ones, with the real types. Everything around them is a model of
// what package worker/internal/autoscale, env, pool and claim do, as far as it has to do with numbers and time: the same gates
// on what the caches lack, the same write that tests the old value, the same windows. One who changes a rule there changes it
// here. Pods are alike; a sandbox's Pod is always reset or replaced in the same time; no caller retries after a refusal.
//
// # The same plan gives the same run
//
// To the byte: one seed makes all chance, of which each concern has a stream of its own, so that two policies meet the same
// claims; no map is walked where order counts; drawn times are whole milliseconds. There is no clock, no network, no file here.
//
// # Invariants
//
// Check holds every run, whatever happens in it, to I6 (what runs is never removed for a scale-down) and to the part of I9 that
// one cluster answers for (no growth past a ceiling), beside the policy's own promises. I10: events and claims of a run are
// bounded (maxEvents, MaxClaims).
package simulate
