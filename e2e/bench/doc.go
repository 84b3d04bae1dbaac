// SPDX-License-Identifier: Apache-2.0

// Command bench measures targets beside their limits in the same run. Parts (-only):
//
//   - routing, queue, autoscaling, ingest: Go benchmarks. A pick in one of 100,000 Envs while reports arrive, beside a lookup; a long queue
//     beside a short; reports applied beside decoded.
//   - keyed, saturation, fanout, recovery, memory, reporting: a hub with simulated workers (package crowd). A claim key, beside a grouped
//     store write; claims to a Saturated cluster; a change sent to 100 workers, beside a bare server; kill -9 of the hub, beside decoding
//     its reports; RSS; claims with and without 1000 reporting workers.
//   - reach: connections to a sandbox's port, beside ones through the API server.
//   - agents: what an author of agents waits for, by E2B's calls: a command's first output from the create on, beside `atollctl exec` and
//     beside a bare claim; a file, beside kubectl cp; requests to a port, beside a forwarded one, and one behind a proxy.
//   - kubectl: a cluster's API server through the hub, beside direct access.
//   - ceiling, latency, cost, swap: claims on a real control plane, beside a JSON patch with the same content, encoding and credentials.
//     Both end the tracking of managed fields; because keeping it costs more than a claim.
//   - burst: all idle Pods of three clusters claimed at once, beside patches of as many.
//   - replicas, throughput, moved: three replicas of the hub on an etcd: crossing one, killing one, claims beside etcd's transactions,
//     relaying a report, a third of many clusters attached anew.
//   - sustained: claims and releases from one pool, whose Pods are replaced, at growing rates, then ten minutes at the highest one held.
//   - peer: kubernetes-sigs/agent-sandbox of the checkout at -peer, beside Atoll: claims, API writes and processor time of a cycle.
//   - fill, rest, busy: a worker with 1000 Envs and 10,000 Pods: filling a pool, beside Pods created singly; ten minutes without a write;
//     100 claims a second.
//
// How it measures:
//
//   - Latency of requests is open-loop (package load); a failed request counts as the slowest. Where a result names no rate, it is so low
//     that requests rarely overlap: a second 2 first outputs, 50 requests to a port; of kubectl 40 objects, 5 lists, 20 changes.
//   - A closed loop measures a rate, no latency: ceiling, throughput, several callers of a port, bytes a second of a file or a connection.
//   - Events come one at a time, each timed from its start: saturation, fanout, recovery, a killed replica, an Env's change.
//   - A comparison has ten interleaved pairs (ABBA). The median of their ratios is judged; the 95 % interval (order statistics) is shown.
//   - If others use a tenth of the machine, only counts (writes, bytes, stray claims) are judged.
//   - -quick takes minutes and judges only counts.
//
// The command reach (`make reach`) measures something else: how a hub that is held to a memory limit and two processors grows with the
// number of clusters. Processes of their own simulate the clusters (package crowd; their claims, reports, certificates and connections are
// real, their Pods are numbers). For each number of clusters: all join at once; claims alone; claims while all report; a third lost and
// back; kill -9 of the hub; all workers replaced; Envs changed by the catalogue, many at once and one at a time. After each, the API has to
// show every cluster fresh with what its worker has, and a sample of Envs member by member. The last part has the exponents with which
// figures grow. With -hubs several replicas share an etcd and the two processors; the first of them is killed, memory is that of the one
// that has most, and each has to show every cluster.
//
// Results go to bin/bench/latest.json as each part ends; a failed part fails alone. The exit code is 1 after a failure or missed target, 2
// on wrong usage.
package main
