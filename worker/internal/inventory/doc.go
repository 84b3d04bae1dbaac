// SPDX-License-Identifier: Apache-2.0

// Package inventory keeps the index over this cluster's Pods for packages claim and sandboxes, and the one lock of the three.
//
// In: events of Envs, pools, Nodes and Pods, live reads, and writes on Pods. Out: State and View (idle Pods, sandboxes, claim keys), and
// Changes for observers. It keeps I1. It holds an entry per Pod, and disowned sandboxes for ten minutes (I10).
//
//	write.go
//	term.go       one term of leadership
//	setback.go    a restored etcd
//	inventory.go  the lock
//	client.go     requests to the API server
//	hold.go       a claim's Pod
//	state.go      the index
//	node.go
//	pool.go       pools, and what they allow
//	decide.go     decisions (pure)
//	idle.go
//	images.go     which nodes have pulled which images
//
// # The lock
//
//   - Only Update and View open the index and Guarded values; because nothing may run without the lock.
//   - Observers get a change under the lock; because an idle Pod goes to a waiting claim in the critical section of its event (I1):
//     TestNoPodIsIdleWhileAClaimWaits.
//   - unplace takes back what place counts; because each view of a Pod calls both.
//   - Under the lock nothing is sent or read from a disk; because every claim waits for it.
//
// # A restored etcd (I1)
//
// Serving stops (package agent) when
//
//   - a write gets a version exceeded before it was sent: TestI1AWriteToARestoredEtcdIsNotReturned; one that changes nothing gets none:
//     TestAWriteThatChangesNothingIsNoRestore;
//   - a live read is older than what was seen before it: TestI1APodThatWentBackIsNoticed, TestAPodThatChangesWhileItIsLookedAtIsNotSetBack;
//   - an ended sandbox is on a Pod again: TestI1WhatHasEndedAndIsThereAgainIsNoticed.
//
// A Pod seen in a newer version is not idle: TestI13_LabelsEditedByHandHideNoSandbox.
//
// # Claim keys (I2)
//
//   - A leader serves only after a live list that follows its election; because informers lag: TestI2ANewLeaderListsBeforeItServes.
//   - What observers leave for want of the lease they look at again once it is held: TestI2WhatAppearedWithoutTheLeaseIsLookedAtAgain.
//   - Of two Pods with one key the higher attempt, then incarnation, then sandbox id holds it: TestOutranks.
package inventory
