// SPDX-License-Identifier: Apache-2.0

// Package inventory indexes this cluster's Pods for packages claim and sandboxes, and has the one lock of the three.
//
// In go events of Pods, Nodes and pools, live reads, and writes on Pods; out come idle Pods, Pods that carry sandboxes and claim
// keys, and Changes for observers. A new leader builds it anew from the Pods.
//
//	term.go       a time of leading
//	write.go      a write on a sandbox's Pod
//	setback.go    an etcd that was set back
//	inventory.go  the lock: Update, View, Observer
//	hold.go       a Pod that a claim has taken
//	state.go      the index; node.go, idle.go, pool.go, decide.go, client.go
//
// # The lock
//
//   - Only Update and View give out the index, and Guarded values of the other packages open with it; so nothing that needs the lock
//     runs without it.
//   - Observers hear of a change before the lock is released; because a Pod that became idle goes to a waiting claim at once (I1).
//   - With the lock held nothing is sent or read from a disk; because every claim waits for it.
//
// # An etcd that was set back (I1)
//
// A Pod that looks idle in it may run a forgotten sandbox. Nothing is served once
//
//   - a write gets a version that had been passed before it was sent: TestI1AWriteToARestoredEtcdIsNotReturned; one that changes
//     nothing gets none: TestAWriteThatChangesNothingIsNoRestore;
//   - a live read is older than what was seen before it was sent: TestI1APodThatWentBackIsNoticed,
//     TestAPodThatChangesWhileItIsLookedAtIsNotSetBack;
//   - a sandbox that has ended is on a Pod again: TestI1WhatHasEndedAndIsThereAgainIsNoticed.
//
// Before that, a Pod of which a newer version was seen is not idle: TestI13_LabelsEditedByHandHideNoSandbox.
//
// # Claim keys (I2)
//
//   - A leader serves after a live list that follows its election; because informers lag: TestI2ANewLeaderListsBeforeItServes.
//   - Of two Pods with one key that of the higher attempt, then incarnation, then sandbox id holds it: TestOutranks.
//
// In memory are an entry a Pod, and disowned sandboxes for ten minutes (I10).
package inventory
