// SPDX-License-Identifier: Apache-2.0

// Package inventory keeps the index over this cluster's Pods for packages claim and sandboxes, and the lock that the three share.
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
//   - Only Update and View give access to the index and Guarded values; because no code may use them without the lock.
//   - Observers get a change under the lock; because an idle Pod goes to a waiting claim in the critical section of its event (I1):
//     TestNoPodIsIdleWhileAClaimWaits.
//   - unplace reverts place; because each view of a Pod calls both.
//   - Under the lock nothing is sent or read from disk; because every claim waits for it.
//
// # A restored etcd (I1)
//
// Serving stops (package agent) when
//
//   - a write gets a version that was exceeded before it was sent: TestI1AWriteToARestoredEtcdIsNotReturned; a write that changes nothing
//     gets no new version, which is no restore: TestAWriteThatChangesNothingIsNoRestore;
//   - a live read is older than what was seen before it: TestI1APodThatWentBackIsNoticed, TestAPodThatChangesWhileItIsLookedAtIsNotSetBack;
//   - a sandbox that has ended is on a Pod again: TestI1WhatHasEndedAndIsThereAgainIsNoticed;
//   - package agent has found the restore, even before this term serves: TestI1ATermThatIsSuspendedBeforeItServesStaysSuspended.
//
// A Pod of which a newer version was seen is not idle: TestI13_LabelsEditedByHandHideNoSandbox.
//
// # Claim keys (I2)
//
//   - A leader serves only after a live list that follows its election; because informers lag: TestI2ANewLeaderListsBeforeItServes.
//   - If observers skip a sandbox because the lease has lapsed, they check it again when the lease is held:
//     TestI2WhatAppearedWithoutTheLeaseIsLookedAtAgain.
//   - Of two Pods with one key, the one with the higher attempt, then incarnation, then sandbox id holds it: TestOutranks.
package inventory
