// SPDX-License-Identifier: Apache-2.0

// Package replicas decides whether a member's replicas are the user's, or, while its scaling group is enabled, the autoscaler's.
//
// In: an Env and its pools, managed fields included. Out: contested members, and the autoscaler's one write, Set.
//
//	set.go      a patch that tests the member's position and old replicas
//	managed.go  the last writer of replicas
//	contest.go  values of other writers
//
// # Rules
//
//   - Another writer's value is undone once; because an old manifest may have been applied whole. A value that returns within five minutes,
//     or a third value, stays until the user changes config or spec.autoscaling. I10: only such members have an entry in memory:
//     TestContests.
//   - A client-side apply of a whole manifest does not count as such a writer, however often it recurs: TestContests.
//   - Managed fields are no protection; so every interpretation of them keeps what exists.
package replicas
