// SPDX-License-Identifier: Apache-2.0

// Package quota is an admission plugin that limits what a team may hold in this cluster, over all its pools together.
//
// In: the ConfigMap atoll-team-quotas of the worker's namespace (limits.go, source.go), and the pools and Envs of the cache, of
// which gather.go makes a Snapshot. Out: a Verdict, by Decide, which is pure. A team is the value of a pool's label
// scheduling.navix.sh/team; pools without it have no limit.
//
//	data:
//	  ml: |                # the team; _default is for all teams without an entry
//	    maxReplicas: 40    # Pods, idle ones included
//	    cpu: "80"          # sum of the Pods' requests, as a scheduler counts them
//	    memory: 256Gi      # what is left out is not limited
//
// # Rules
//
//   - A pool holds the requested replicas, in its spec or its member's, or its existing Pods if these are more. A member that is
//     frozen in its Env counts before its pool is created: TestWhatIsHeld.
//   - What is admitted is reserved until the cache shows it: one reservation per pool, replaced when the pool asks again, and
//     dropped when the cache shows what it was for, or after half a minute; because the caller may have failed.
//     TestTwoPoolsAndTheLastPlace.
//   - All questions are decided under one lock: TestManyPoolsAtOnce.
//   - A crash loses no reservation that matters; because what was frozen or written counts, and the rest is asked for again.
//   - The limit applies to what Atoll writes on its own: the first rendering of a member, and growth by the autoscaler. Replicas
//     that a user sets are not changed; Pods beyond the limit are refused one by one, first come, first served among the team's
//     pools: TestPods.
//   - Pods that were on their way when the team exceeded its limit count once the cache has them: TestPodsOnTheirWayCount.
//   - I6: a lowered limit ends nothing; the team does not grow until it is below the limit.
//   - An entry that cannot be read stops growth, but no Pods: what was admitted is still filled up.
//   - There is no decision before the limits have been read: TestNothingIsAnsweredBeforeTheLimitsAreRead.
package quota
