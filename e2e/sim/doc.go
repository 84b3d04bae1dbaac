// SPDX-License-Identifier: Apache-2.0

// Package sim tests a federation's faults in one process, on a simulated network and clock.
//
// In: a seed. Out: whether every invariant held. A world is a testing/synctest bubble with a hub (hub/hubtest) and clusters with workers
// (worker/workertest), over e2e/sim/simnet. API server, etcd, kubelet and pool reconciler are models (planes and kind test the real ones);
// link, fleet, ledger, router, agent, claims, lease and merge are real.
//
// From fault 40 on the hub is three or five replicas, joined by package peers over the same network. Models of an etcd hold their ledger
// and registry. Calls go to any replica, keys to two at once. Replicas are killed, frozen, restarted, and parted from the store, from each
// other and from workers; the store loses its quorum. Faults from 100 on are those of one hub, 100 lower, for three replicas.
//
//	load: claims with old and new keys, and without; releases; cancels; callers that time out, or leave a sandbox
//	the scenario's fault, under the load
//	heal; ask for every key until its outcome is known; claim without keys
//	check; end all live sandboxes, by id or key; check that they ended
//
// The checks read a journal of each etcd:
//
//   - I1: no Pod or container is given to two callers.
//   - I2: responses for a key are linearizable (porcupine, history_test.go); it has one sandbox; other Pods with it end.
//   - I4: all views equal the owners', and these the clusters' contents.
//   - I5: nothing removed comes back; nothing is removed because its owner was not heard.
//   - I6: a sandbox lives until a caller ends it or its idle timeout passes.
//   - After the heal, every claim and release gets a response, and what was released ends.
//
// The model of keys is not that of e2e/history; because callers also repeat keys with other parameters and cancel unknown keys, and because
// the journal, not the model, says whether a sandbox may end without a call. Calls are ordered by a counter; because the bubble's clock
// stands still while they run.
//
// A seed fixes all but Go's scheduler: a failure may need a few runs.
//
//	go test ./e2e/sim -sim.seeds=500            each fault with the seeds 1 to 500
//	go test ./e2e/sim -sim.seed=7 -sim.seeds=1  the seed 7; -sim.log adds the logs of hub and workers
package sim
