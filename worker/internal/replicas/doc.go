// SPDX-License-Identifier: Apache-2.0

// Package replicas says who sets a member's replicas: the user, or the autoscaler while the member's scaling group is enabled.
//
// In: an Env and its pools, managed fields included. Out: which members another writer interferes with or contests; and the
// autoscaler's one write to an Env, Set.
//
//	set.go      Set: a patch that tests the member's place and its old replicas
//	managed.go  who wrote replicas last, by managed fields
//	contest.go  Contests: a value of another writer is undone once, and then left to stand
//
// # Rules
//
//   - A value that another writer sets is put back once; because a whole manifest of old may have brought it. One that comes back
//     within five minutes, or a third one, stands, and the member is left alone until the user changes its config or
//     spec.autoscaling: TestContests.
//   - Managed fields are bookkeeping and no protection: every reading of them here keeps what exists.
//   - Memory has an entry for a member while it is contested or was interfered with lately (I10): TestContests.
package replicas
