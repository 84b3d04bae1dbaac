// SPDX-License-Identifier: Apache-2.0

// Package inventory keeps the index over this cluster's Pods for packages claim and sandboxes, and the one lock of the three.
//
// In: events of Envs, pools, Nodes and Pods through Watch, live reads, and writes on Pods. Out: State and View, that is idle Pods and
// the Pods that carry sandboxes and claim keys, and Changes for observers, under the one lock. It keeps I1. A new leader rebuilds
// the index from the Pods.
//
//	write.go      a write on a sandbox's Pod
//	term.go       one term of leadership
//	setback.go    an etcd that was restored from a backup
//	inventory.go  the lock: Update, View, Observer
//	client.go     requests to the API server
//	hold.go       a Pod that a claim has taken
//	state.go      the index: State and View
//	node.go       Nodes, and the Pods on them
//	pool.go       pools, and what they and their Envs allow
//	decide.go     the pure decisions
//	idle.go       the idle Pods of a pool
//
// # The lock
//
//   - Only Update and View give access to the index, and only a State or a View opens the Guarded values of the other packages;
//     because then nothing that needs the lock runs without it.
//   - Observers get a change before the lock is released; because a Pod that becomes idle goes to a waiting claim in the critical
//     section of the event (I1); held by TestNoPodIsIdleWhileAClaimWaits.
//   - What place counts, unplace takes back; because each new view of a Pod calls unplace and then place.
//   - With the lock held nothing is sent, and nothing is read from a disk; because every claim waits for it.
//
// # An etcd that was restored from a backup (I1)
//
// A Pod that looks idle in it may run a sandbox that etcd has lost. Serving stops when
//
//   - a write gets a version that was exceeded before it was sent; held by TestI1AWriteToARestoredEtcdIsNotReturned. A write that
//     changes nothing gets no version; held by TestAWriteThatChangesNothingIsNoRestore;
//   - a live read is older than what was seen before it was sent; held by TestI1APodThatWentBackIsNoticed,
//     TestAPodThatChangesWhileItIsLookedAtIsNotSetBack;
//   - a sandbox that has ended is on a Pod again; held by TestI1WhatHasEndedAndIsThereAgainIsNoticed.
//
// Before that, a Pod of which a newer version was seen is not idle; held by TestI13_LabelsEditedByHandHideNoSandbox.
//
// # Claim keys (I2)
//
//   - A leader serves only after a live list that follows its election; because informers lag; held by
//     TestI2ANewLeaderListsBeforeItServes.
//   - Of two Pods with one key the one with the higher attempt, then incarnation, then sandbox id holds it; held by TestOutranks.
//
// In memory are one entry per Pod, and disowned sandboxes for ten minutes (I10).
package inventory
