// SPDX-License-Identifier: Apache-2.0

// Package replicas decides whether a member's replicas are the user's, or the autoscaler's, which sets them while the member's
// scaling group is enabled.
//
// In: an Env and its pools, managed fields included. Out: which members another writer interferes with or contests; and the
// autoscaler's one write to an Env, Set.
//
//	set.go      Set: a patch that tests the member's place and its old replicas
//	managed.go  the last writer of replicas, by managed fields
//	contest.go  Contests: a value of another writer is undone once, and then stands
//
// # Rules
//
//   - A value of another writer is undone once; because it may come from an old manifest that was applied whole. A value that
//     comes back within five minutes, or a third one, stands, and the member is left alone until the user changes its config or
//     spec.autoscaling: TestContests.
//   - Managed fields are bookkeeping and no protection; so every reading of them here keeps what exists.
//   - I10: memory has an entry for a member only while it is contested or was recently interfered with: TestContests.
package replicas
