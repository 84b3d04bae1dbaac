// SPDX-License-Identifier: Apache-2.0

// Package claim hands out the Pods of this cluster.
//
// Pod, Node and pool events go in, and claims from the hub's dispatches and from the local API; sandboxes come out, each
// by one write to the API server. Everything the package knows is an index over what is on the Pods: a new leader rebuilds
// it from a live list.
//
//	create.go  one claim from its call to its result
//	keys.go    what became of a claim key
//	wait.go    one claim in the queue, and how it leaves
//	queue.go   who waits, and whose turn it is
//	write.go   the claim write, and what its result means
//	start.go   a sandbox until it runs, and another one if it does not
//	decide.go  the pure decisions
//
// Pods are indexed in package inventory, whose lock guards what is here as well; package sandboxes looks after what was handed out.
//
// # The queue
//
// Of each pool; bounded, by 8192 claims unless configured otherwise. Nothing polls: the event that makes a Pod idle hands it
// to whose turn it is, in O(log n), so a Pod is idle only while nobody waits. Teams take turns; within a team its users do, and a
// user's claims go in the order in which they came. A claim that lost its Pod to another writer comes back to its place,
// its turn unspent, and the bound does not hold for it: there are no more such claims than Pods.
//
// Who cannot be served is refused at once, with a reason, so that the hub can go elsewhere (admit in decide.go): NO_CAPACITY
// who does not want to wait, or finds a pool without Pods that the autoscaler cannot make grow in time, DEADLINE whose time is up, QUEUE_FULL who finds the queue full. A claim of a
// team that has fewer in a full queue than another is not refused: the newest claim of the team with most makes room and is refused
// instead; within a team the same holds for its users. So one team's flood takes neither the Pods nor the places of the others, and
// users that it invents gain it nothing (I14): TestTurnsAreFair, TestDisplacingEvensOut. Teams are what callers' credentials say: at
// the local API, which asks for none, what callers say.
//
// A claim without a key whose sandbox ended before it ran, by no fault of the request's, comes back to its place in the same
// way, while there is time, for three sandboxes at most; with noQueue it gets what is idle then. One that gets none is told why
// the last one did not run. A claim with a key is told so at once: its sandbox has ended, and the key answers the terminal
// record from then on, here and, once the record is there, at the hub, which releases whatever else appears under the key. A
// second sandbox would be one more for one key (I2), and lost with the answer.
//
// A claim that nobody waits for any more leaves the queue, and a Pod that it was just given goes to the next one.
//
// The length of a queue is in the segment that the hub routes by, as it is when a report is made. The pool reconciler copies
// it into the pool's status, for people, see package pool.
//
// # I1, a Pod is never answered to two claims
//
// The write tests that the Pod is idle, undying and itself, so the API server lets one of any number of writers win, two
// leaders included. A lost write is followed by a live read: a Pod that shows our sandbox id is ours after all, the answer
// to an earlier try having been lost. An unclear write is repeated on the same Pod under the same sandbox id, which can
// only succeed once, before it is called unclear. From the first unclear try on it is never refused: only what a test of the
// write says, or a live read, settles it; a denial (401, 403, 429) is of the try that it answers. The client sends each try
// once, for one that it repeated by itself would look like the first.
//
// A write that is answered with a version which had been passed before it was sent went to an etcd that was set back: its
// Pod may run a sandbox that etcd has forgotten. It is not answered, and nothing is served any more; so it is when a Pod is
// found older than it was seen, see SetBack and, for the rest, package agent.
//
// # I2, at most one sandbox is answered for a key
//
// One claim of a (key, attempt) is carried out at a time and whoever asks for it joins; it goes on when its caller leaves.
// After the write it is answered only while the lease is held: later, a new leader may have listed before the Pod was
// written. A leader serves after a live list that follows its election, so it sees every Pod that an earlier one may have
// answered. Of two Pods with one key the one of the higher attempt, then incarnation, then sandbox id stays; the other
// ends as Canceled. It was never answered: a lower incarnation wrote after it lost its lease. Within one incarnation, a
// write whose outcome stayed unclear is the answer if it has appeared by the time somebody asks for its key again, and
// ends if it appears later.
//
// # Timeouts
//
// Package idle decides; here its lives come from the index, and its ends are written: by whoever holds the lease, and as a
// release that tests what was decided from, so that it loses to a touch, to a change of the timeouts, and to a later leader
// (I6). A claim without a key whose sandbox has not run within its startup timeout ends it as Failed; one with a key leaves
// that to package pool, since it may be asked for again.
//
// # Pause
//
// Package pause decides; here its steps are written. A sandbox has one turn at a time, to being paused or to running: whoever
// wants the same joins it, and whoever wants the opposite is refused, before anything is written, as UNAVAILABLE, since a
// retry will do. (Of the public reasons none says that two calls conflict; CLAIM_KEY_CONFLICT is about keys.) The one who is
// told is the one who asked: a turn answers when the node has done it, when it says that it will not or not yet, or after 8 s.
// Nobody has to wait for it to go on. Every event of a Pod that carries an intent is looked at, and so is every such Pod when
// this process begins to lead: what is left to write is written. A write that fails is tried again after a while, one that is
// refused for good is taken back. A release, an end or a timeout needs no turn: it wins, and the turn ends with the sandbox.
//
// Waits are woken from the index, which is what callers are shown: the cache of package sandboxcache lags behind it.
//
// # Memory (I10)
//
// What nobody was told of is ended by one goroutine a sandbox, which goes on with a growing pause until that is written or
// this process serves no more: with firstActivityTimeout 0 nothing else would end it.
//
// The index has an entry a Pod; waiters are bounded by pool; refusals and cancels are remembered for ten minutes, up to a
// number, on the monotonic clock (I11). What has ended is in package history, which is never read with the lock held: a slow
// disk keeps no claim waiting. In memory are only those records that no Pod shows any more and no disk has taken yet.
package claim
