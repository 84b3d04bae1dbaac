// SPDX-License-Identifier: Apache-2.0

// Package sim tries the faults of a federation in process, on a simulated network and clock: minutes cost milliseconds.
//
// In goes a seed; out comes whether every invariant held. A world is a testing/synctest bubble with one hub (hub/hubtest)
// and some clusters with their workers (worker/workertest), which speak gRPC with TLS over a network in memory
// (e2e/sim/simnet). Link, fleet, ledger, router, agent, claim service, lease and the merge of foreign segments are the
// product's own; API server, etcd, kubelet and the reconciler of pools are played. What is played is tested for real on
// planes and on kind.
//
// # A run
//
//	start; all clusters healthy
//	load: claims with a key, old and new, and without; releases; cancels; callers who lose patience, or use what they
//	have and leave it to its idle timeout
//	the scenario's fault, under the load
//	heal; every key is asked for until it is known what became of it; claims without a key must be answered
//	check; end what lives, by its id or by its key; check that it has ended
//
// The checks: what callers were told of each key is linearizable (porcupine; a key is a register), no Pod or container was
// given twice (I1), one sandbox a key, and other Pods that carry it end (I2), what was given lives until a caller asks to end
// it or its idle timeout has passed since its last use (I6), every claim and every release is answered once the federation is
// healed, and what was released ends, the hub's and every cluster's view equal what the owners say, and that what the clusters
// have (I4), nothing that was removed comes back, nothing goes because it was not heard of (I5). They use a journal of each
// etcd, and nothing that a program says.
//
// Breaking the product on purpose was tried: no write before a dispatch, a cancel that is not durable, no quarantine, no
// replacing of idle Pods after a restore, a hub that refuses every claim without a key, a release that does nothing. Each was
// seen to fail within twenty seeds of the fault that it concerns, the last two with every seed.
//
// # Seeds
//
// A seed fixes the scenario: what happens when, what clients ask, how long everything takes. What runs at the very same
// instant is up to Go's scheduler, so a seed that fails may have to be run a few times to fail again. The line that a
// failure prints says how.
//
//	go test ./e2e/sim -sim.seeds=500            each fault with the seeds 1 to 500
//	go test ./e2e/sim -sim.seed=7 -sim.seeds=1  the seed 7, with -sim.log what hub and workers log
package sim
