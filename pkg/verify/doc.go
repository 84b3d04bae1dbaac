// SPDX-License-Identifier: Apache-2.0

// Package verify checks a running federation against its invariants, from outside: it reads what the API servers hold and
// what the hub says, and trusts neither.
//
// In go places to look (Federation); Look gathers a Snapshot, Check and Compare decide, Settle looks until nothing is wrong
// or patience has passed, and out come findings that name the invariant, the cluster, the object, what is wrong and what
// was expected. Check and Compare are pure. Whatever cannot be looked at, a hub that is gone included, hides nothing else:
// it is named in Blind, and what would need it is not judged.
//
// Two kinds of findings: what must never be (two Pods with one sandbox) is wrong if a single look saw it; what passes by
// itself (a view that is behind) is wrong if it stood unchanged for the last ten seconds. Nothing here is compared with
// this machine's clock.
//
//	    checked                                                        not seen from outside
//	I1  a live sandbox is on one Pod, its id minted there, label and   responses that reached callers: e2e records them
//	    annotation alike, and stays there between looks; claims
//	    carry incarnations that were persisted
//	I2  live Pods with one key, over all clusters; the hub holds the   keys beyond 500 a look; those of local APIs at the
//	    key where its Pod is; every live sandbox is in the hub's       hub, which does not know them
//	    list; one that vanished between looks left a record
//	I3  isLocal; neither of the worker's two field managers owns       whether a re-apply lost something: e2e
//	    anything in the other's segments
//	I4  foreign segments and the hub's view equal the owners'; no      clusters that were not looked at, or that the hub
//	    segment of an Env or a cluster that is gone                    does not hear, and Envs without members there
//	I5  nothing with an owner is missing in the hub's view; it lists   why something was deleted
//	    no sandbox without a Pod; incarnations never go back
//	I6  no sandbox is on a Pod marked for scale-down, or deleted       who deleted it: the API server's audit log
//	    while its pool stays, evictions aside
//	I7  a cluster whose worker leads is heard; none calls it stale;    claims that were slower: e2e, bench
//	    parts of fresh clusters are of now; the hub responds promptly
//	I8  each cluster's lease is held and renewed, by the API server's  whether claims are served: ask a worker
//	    clock alone; local segments equal pools and Pods
//	I10 goroutines, memory, queues and outboxes of /metrics against    growth over hours; series that alerts watch
//	    counts of clusters, Envs, members and Pods (bounds.go)
//	I11 times on Pods lie between creation and the API server's now;   decisions that were taken before
//	    states agree with the hub's monotonic ages; skew is a note
//	I12 the hub's name ↔ kube-system uid is the cluster's own, unique, the certificate: the link refuses others
//	    and stays; incarnations are ones that the cluster wrote
//	I13 idle Pods carry no identity beyond their template's; none      files and processes: e2e/kubelet
//	    kept a container that a tenant had in an earlier look
//
// I9 is about room that no part grants yet.
package verify
