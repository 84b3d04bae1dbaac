// SPDX-License-Identifier: Apache-2.0

// Package verify checks a running federation against its invariants from outside: it reads the API servers and the hub, and
// compares the two. It trusts neither.
//
// In go the hub and clusters to read (Federation). Look gathers a Snapshot; Check and Compare decide; Settle repeats this until
// nothing is wrong or a deadline passes. Out come findings: invariant, cluster, object, what is wrong, what was expected. Check
// and Compare are pure. A place that cannot be read, even the hub, does not hide findings of the others: Blind names it, and
// checks that need it are skipped.
//
// There are two kinds of findings. Some are wrong if one look sees them (two Pods with one sandbox). Others may be in
// transition (a stale view): they are wrong if unchanged for the last ten seconds. No check uses this machine's clock.
//
//	    checked                                                        not visible from outside
//	I1  a live sandbox is on one Pod, its id minted there, label and   responses that reached callers: e2e records them
//	    annotation alike, and stays there between looks; claims
//	    carry incarnations that were persisted
//	I2  live Pods with one key, over all clusters; the hub holds the   keys beyond 500 a look; keys of local APIs, which
//	    key where its Pod is; every live sandbox is in the hub's       the hub does not have
//	    list; one that vanished between looks left a record
//	I3  isLocal; neither of the worker's two field managers owns       whether a re-apply lost something: e2e
//	    anything in the other's segments
//	I4  foreign segments and the hub's view equal the owners'; no      clusters that were not read, or that the hub
//	    segment of an Env or a cluster that is gone                    does not hear, and Envs without members there
//	I5  nothing with an owner is missing in the hub's view; it lists   why something was deleted
//	    no sandbox without a Pod; incarnations never go back
//	I6  no sandbox is on a Pod marked for scale-down, or deleted       the writer that deleted it: the API server's
//	    while its pool stays, evictions aside                          audit log
//	I7  a cluster whose worker leads is heard; none calls it stale;    claims that were slower: e2e, bench
//	    parts of fresh clusters are current; the hub responds promptly
//	I8  each cluster's lease is held and renewed, by the API server's  whether claims are served: ask a worker
//	    clock alone; local segments equal pools and Pods
//	I10 goroutines, memory, queues and outboxes of /metrics against    growth over hours; series that alerts watch
//	    counts of clusters, Envs, members and Pods (bounds.go)
//	I11 times on Pods lie between creation and the API server's now;   earlier decisions
//	    states agree with the hub's monotonic ages; skew is a note
//	I12 the hub's name ↔ kube-system uid is the cluster's own, unique, the certificate: the link refuses others
//	    and stays; incarnations are ones that the cluster wrote
//	I13 idle Pods carry no identity beyond their template's; none      files and processes: e2e/kubelet
//	    kept a container that a tenant had in an earlier look
//
// I9 has no check: it limits room that is not granted yet.
package verify
