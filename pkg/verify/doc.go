// SPDX-License-Identifier: Apache-2.0

// Package verify checks the invariants of a running federation from outside.
//
// In: hub and clusters (Federation). Out: findings, each with invariant, cluster, object, what is wrong and what was expected. Look gathers
// a Snapshot; Check and Compare are pure; Settle repeats them.
//
//   - A part that cannot be read does not hide the findings of others: Blind names it, and checks that need it are skipped.
//   - A finding that may be transient (a stale view) counts if it is unchanged for ten seconds. Other findings count after one look.
//   - No check uses this machine's clock.
//
// Checks:
//
//	    checked                                                      not visible from outside
//	I1  a live sandbox is on one Pod, its id minted there, label     responses that reached callers: e2e
//	    and annotation alike; claims carry persisted incarnations
//	I2  live Pods with one key, over all clusters; the hub holds     keys beyond 500 a look; keys of local APIs
//	    the key where its Pod is, and lists live sandboxes; those
//	    that vanish leave a record
//	I3  isLocal; the worker's two field managers own nothing in      whether a re-apply lost something: e2e
//	    each other's segments
//	I4  foreign segments and the hub's view equal the owners'; no    clusters not read or heard, and Envs
//	    segment of a gone Env or cluster; each cluster has the       without members there
//	    revision that the hub's catalogue says is applied
//	I5  nothing with an owner is missing in the hub's view; no       why something was deleted
//	    sandbox without a Pod; incarnations never go back; the
//	    catalogue knows what it has delivered
//	I6  no sandbox is on a Pod marked for scale-down, or deleted     who deleted it: audit log
//	    while its pool stays, evictions aside
//	I7  a leading worker's cluster is heard, current, never stale;   slower claims: e2e, bench
//	    the hub responds promptly
//	I8  leases are held and renewed, by the API server's clock;      whether claims are served: ask a worker
//	    local segments equal pools and Pods
//	I9  with --allotments: rooms fit into maxReplicas, and no        who wrote replicas: audit log
//	    cluster holds more than the hub counts
//	I10 goroutines, memory, queues, outboxes against clusters,       growth over hours
//	    Envs, members, Pods (bounds.go)
//	I11 times on Pods lie between creation and the API server's      earlier decisions
//	    now; states agree with the hub's ages; skew is a note
//	I12 the hub's name ↔ kube-system uid is the cluster's own,       the certificate: link
//	    unique, and stays; incarnations are the cluster's
//	I13 idle Pods have their template's identity only, and no        files and processes: e2e/kubelet
//	    container that a tenant had in an earlier look
//	I14 nothing                                                      fair shares: e2e/adversary, e2e/bench
//	I15 nothing, but for the ids of I1 and the keys of I2            lies: e2e/adversary
package verify
