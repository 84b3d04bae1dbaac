// SPDX-License-Identifier: Apache-2.0

// Command bench measures what Atoll promises, each figure beside its limit in the same run.
//
// It runs parts one after the other (-only chooses some of them):
//
//   - routing, queue, autoscaling, ingest: Go benchmarks of the packages. A routing pick among 8 members of one of 100,000
//     Envs while reports arrive, beside a bare lookup; a decision of a long claim queue beside one of a short queue; reports
//     taken in beside reports decoded.
//   - keyed, saturation, fanout, recovery, memory, reporting: a real hub with simulated workers that speak the real protocol
//     (package crowd). What a claim key adds, beside a grouped store write; claims that go to a Saturated cluster; a change
//     told to 100 workers, beside a server that only sends it; kill -9 of the hub, beside a process that decodes the same
//     reports; the hub's RSS; claims while 1000 workers report, beside claims while they do not.
//   - reach: connections to a port of a sandbox, through hub, tunnel and worker, beside ones through the API server alone.
//   - ceiling, latency, cost, swap: claims through hub and worker on a real control plane, beside a raw JSON patch of the same
//     kind of Pod with the same content, encoding and credentials. Both arms start from Pods whose managed fields the API
//     server tracks, and both end that, as a claim does: a patch that does not costs the API server more than a claim.
//   - fill, rest, busy: a worker with 1000 Envs and 10,000 Pods. A pool that is filled, beside Pods that are made one by one;
//     ten minutes in which nothing may be written; then 100 claims a second.
//
// How it measures:
//
//   - Latency is open-loop (package load). A request that failed counts as the slowest there is.
//   - A comparison has ten pairs of legs, its arms interleaved (ABBA). Its ratio is the median of the ratios of the pairs, with
//     the 95 % interval by order statistics. The ratio itself, not the interval, is judged against the target.
//   - It measures the processor time of all processes that it did not start, while a part runs. Where they take more than a
//     tenth of the machine, the part is spoiled: only what is counted (writes, bytes, stray claims) is judged. Its own load,
//     and load from before the part, do not matter.
//   - -quick measures less of everything in a few minutes. It shows that all parts work, and judges only counts.
//
// The results are printed and written to bin/bench/latest.json as each part ends. A part that fails, or takes too long, fails
// alone. The command exits with 1 when a part failed or a judged target was missed, and with 2 when it was called wrongly.
package main
