// SPDX-License-Identifier: Apache-2.0

// Command bench measures what Atoll promises, each figure beside its limit in the same run.
//
//  1. Routing: a pick among 8 members of one of 100,000 Envs while reports arrive, beside a bare snapshot lookup and beside
//     a scan under an RWMutex.
//  2. Claims: from a client through the hub to a sandbox, without and with a key, beside a raw JSON PATCH of the same kind
//     of Pod with the same content. Latency is open-loop: Poisson arrivals on absolute offsets, timed from the scheduled
//     send. The arms are interleaved (ABBA) and compared pair by pair; both are stocked beforehand and reset untimed. The
//     ceiling is measured once more beside a raw patch that ends the Pod's managed fields, as a claim does; and claims of
//     another image beside patching a Pod's image and watching until its container runs.
//  3. The link, with simulated workers that speak the real protocol (package crowd) and a real hub process, but for the
//     fan-out, where the bare arm needs the hub's end of the same streams: what a claim key adds, beside a grouped store
//     write; ingest and memory, by the fleet's own benchmarks, beside decoding and the decoded messages; claims that still
//     go to a cluster which has become Saturated; a change to 100 workers, beside writing the same frames; kill -9 of the
//     hub, beside decoding the same reports in a process that was just started, both timed from when all connections are
//     let in, with the workers' back-off apart; the hub's RSS; claims while 1000 workers report, which a process of their
//     own with a low priority plays, beside claims while they do not. Every Env there has one pool, and is in four clusters.
//  4. Reaching a sandbox: one connection to a port of it through hub, tunnel and worker, beside one through the same API
//     server alone, as kubectl port-forward makes it: a byte's round trip, opening, and how much goes through.
//  5. A worker with 1000 Envs and 10,000 Pods: how fast a pool is filled, beside Pods that are made one by one and bound by
//     the same scheduler; what is written while nothing happens; what a Pod takes in the worker's memory.
//  6. The autoscaler: a decision about an Env of 32 members, and how many days are simulated in a second, beside nothing.
//     And a claim queue: a decision with 8192 that wait, beside one with 64.
//
// A target counts as missed when its 90 % bootstrap interval over the pairs lies on the wrong side. The command prints a
// table, writes bin/bench/latest.json, and exits non-zero when a target is missed; on a machine whose load is above 1 at
// the start it measures but does not gate.
package main
