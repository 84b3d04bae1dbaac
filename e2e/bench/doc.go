// SPDX-License-Identifier: Apache-2.0

// Command bench measures Atoll's performance targets, each figure beside its limit in the same run.
//
// It runs parts one after the other (-only selects parts):
//
//   - routing, queue, autoscaling, ingest: Go benchmarks of the packages. A routing pick among 8 members of one of 100,000 Envs
//     while reports arrive, beside a bare lookup; a decision of a long claim queue beside one of a short queue; reports applied
//     beside reports decoded.
//   - keyed, saturation, fanout, recovery, memory, reporting: a real hub with simulated workers that speak the real protocol
//     (package crowd). The cost of a claim key, beside a grouped store write; claims that go to a Saturated cluster; a change
//     sent to 100 workers, beside a server that only sends it; kill -9 of the hub, beside a process that decodes the same
//     reports; the hub's RSS; claims while 1000 workers report, beside claims while they do not.
//   - reach: connections to a port of a sandbox, through hub, tunnel and worker, beside ones through the API server alone.
//   - ceiling, latency, cost, swap: claims through hub and worker on a real control plane, beside a raw JSON patch of the same
//     kind of Pod with the same content, encoding and credentials. Both arms start from Pods whose managed fields the API
//     server tracks, and both end the tracking, as a claim does; because a patch that keeps it costs the API server more than a
//     claim.
//   - fill, rest, busy: a worker with 1000 Envs and 10,000 Pods. Filling a pool, beside Pods that are created one by one; ten
//     minutes in which nothing may be written; then 100 claims a second.
//
// How it measures:
//
//   - Latency is open-loop (package load). A failed request counts as the slowest.
//   - A comparison has ten pairs of legs, its arms interleaved (ABBA). Its ratio is the median of the ratios of the pairs, with
//     the 95 % interval by order statistics. The ratio itself, not the interval, is judged against the target.
//   - While a part runs, the bench measures the processor time of all processes that it did not start. Above a tenth of the
//     machine, the part is spoiled: only counts (writes, bytes, stray claims) are judged. Its own load, and load from before
//     the part, do not matter.
//   - -quick measures less of everything in a few minutes. It shows that all parts work, and judges only counts.
//
// Results are printed and written to bin/bench/latest.json as each part ends. A failure or timeout of a part does not stop the
// others. The command exits with 1 when a part failed or missed a judged target, and with 2 on wrong usage.
package main
