// SPDX-License-Identifier: Apache-2.0

// Package pool keeps the Pods of SandboxPools: as many as replicas says, each of
// them looked after from its birth to its terminal record.
//
// What goes in: a pool, its Pods, how long each of them has been in its stage,
// and what was written and not seen yet (gather.go makes a Snapshot of it, from
// the cache alone). What comes out: a Decision, a list of verbs on Pods with a
// typed reason each (decide.go, pure, tested with the texts in testdata). act.go
// carries it out, report.go writes the pool's status. How a sandbox is written on
// its Pod is package sandbox's; claims and releases are package claim's. Here is
// everything that follows from what kubelets report and what time brings:
//
//	starting ── new container runs and is ready ──▶ running
//	starting ── startup timeout ──▶ failed, Failed
//	starting, running ── container ended: 0 ──▶ stopping, Completed; else ──▶ failed, Failed
//	stopping ── reset is done ──▶ idle; cannot be, or takes too long ──▶ replaced
//	failed ──▶ replaced
//
// # Invariants
//
// I1, I6: every delete names uid and resourceVersion. With the uid alone a Pod
// that was claimed a moment ago is deleted with its sandbox. Only idle Pods are
// ever deleted to scale down; they are marked first and can be claimed until the
// window is over, which the claim does by clearing the mark in its own write.
//
// In an autoscaled pool the autoscaler marks Pods first, and lowers replicas once their window is over: marks that are
// not too many are left that long, and half a minute more, and then taken off (marks.go).
//
// I11: windows and timeouts are measured on the monotonic clock from when this
// process first saw the stage (timeline.go). The times on Pods are for people.
// After a restart a stage is timed anew: late by at most its own length, never
// early. The design would have a scale-down mark's time judged after a restart;
// a mark's value only tells one marking from the next here.
//
// I13: a Pod returns to idle only through sandbox.ResetDone; whatever else comes
// to its end is replaced.
//
// # When replacing is quicker
//
// A kubelet holds back a container whose image the Pod ran before, as it does one
// that crashes: by 10 s, 20 s, and so on to 5 min, counted from the end of the
// container before, unless crashLoopBackOff.maxContainerRestartPeriod is set. A
// Pod's first reset is quick; it is the next claim of the same image that waits,
// or the next reset. How a kubelet is configured is not in the API, so it is
// learned (backoffs.go): a node is remembered, for an hour, for the longest
// back-off that it reported in a Pod's status. Is that longer than a new Pod of
// the pool takes (the median of those there), Pods on that node are replaced
// instead of reset, and idle ones that were reset there are replaced as well, a
// fifth of the pool at a time. So it costs one slow start a node and hour.
//
// # Rolling over
//
// Every Pod carries the revision of what it was made from. When the pool's
// template is another, idle Pods of an old revision are replaced (rollout.go), as
// many at a time as the annotation rollout-max-unavailable lets be missing, a
// fifth of replicas without it; those that are not ready first. A Pod with a
// sandbox is never touched; when that has ended, the Pod is replaced rather than
// reset, rollout or not.
//
// # A record, however a Pod dies
//
// Pods are born with a finalizer. When one is being deleted — by us, a user, an
// eviction, or because its node is gone — its sandbox is handed to the Recorder,
// and the finalizer goes only after that was accepted, which means that it is on a
// disk: while that is full Pods wait, and are looked at again. There is one such place
// for all deaths: what replaces a Pod just deletes it. The other end of a sandbox
// is the write that makes its Pod idle, and there, too, the record comes first.
// Pods whose pool is gone are seen off the same way.
//
// # Runtimes and hooks
//
// Pods are made with the ports and the readiness probe of the pool's runtimes; see
// package runtimes for which, and why not always. What no kubelet checks, and a
// claim's post-start hooks, happen between the container's readiness and the write
// that starts the sandbox: package hooks does them, and tells a Snapshot how far it
// is. Running is thus what says that hooks are done.
//
//	starting ── ready, hooks done ──▶ running; a hook failed for good ──▶ failed, PostStartHookFailed
//
// # Labels that were edited by hand
//
// Of a Pod's phase and pool its labels are only a copy (package sandbox). A Pod
// whose labels say otherwise is looked at for nothing else before they are
// written back, with an Event that says so; one that has lost every trace of its
// sandbox is replaced, and package claim records what it was.
//
//	any, labelled otherwise ──▶ as it was
//
// # Caches lag
//
// Expectations hold scaling back until every created and deleted Pod was seen in
// the cache, and hold back all verbs on a single Pod until its latest write was.
// Other writers are met by the tests in each patch: to lose is no error, the
// winner's event brings the next decision.
//
// # Claims that wait
//
// status.pendingRequests is the length of a pool's claim queue, for people: it is
// written when it has moved by a fifth, or to or from 0, and every 3 s at most.
// The queue tells of its first claim and its last; in between its length is looked
// at. Nothing is decided by it.
//
// # Pods that are refused
//
// Package admission is asked before each Pod. Its refusal, and that of a namespace's
// ResourceQuota or LimitRange, is no error: the pool waits, a second at first and a
// minute at most, says why in its condition Scaling and in one Event, and then tries a
// single Pod. What refuses is remembered for whoever raises replicas. Anything else that the API server has against Pods,
// a policy of the namespace or a webhook that denies them, is an error at first, which is tried again soon, and a refusal
// once no Pod could be made for half a minute (failures.go).
//
// # Who else has a say
//
// Others may know what bears on a pool's keeping (gate.go): that another controller keeps it, and it is left alone
// whole; that its template has not been copied yet, and no Pods are made; and conditions, which they hand over because a
// pool's status has one writer.
//
// # Not built
//
// Pods are made from the typed template, so fields newer than this module's
// Kubernetes libraries do not reach them.
package pool
