// SPDX-License-Identifier: Apache-2.0

// Package quota is an admission plugin that limits what a team may hold in this cluster, over all its pools.
//
// In: the ConfigMap atoll-team-quotas of the worker's namespace, pools and Envs. Out: a Verdict. The label scheduling.navix.sh/team of a
// pool is its team; pools without it have no limit.
//
//	data:
//	  ml: |                # the team; _default is for all teams without an entry
//	    maxReplicas: 40    # Pods, idle ones included
//	    cpu: "80"          # sum of the Pods' requests
//	    memory: 256Gi      # what is left out is not limited
//
//	quota.go   the plugin: its lock and its reservations
//	gather.go  what pools and frozen members hold
//	decide.go  (pure)
//	source.go  follows the ConfigMap
//	limits.go  reads an entry
//
// # Rules
//
//   - A pool holds its requested replicas, or its Pods if these are more. A frozen member counts before its pool exists: TestWhatIsHeld.
//   - The admitted amount is reserved, once per pool, until the cache shows it or half a minute passes; because the caller may have failed:
//     TestTwoPoolsAndTheLastPlace.
//   - One lock guards all decisions: TestManyPoolsAtOnce.
//   - A crash loses no reservation; because written changes count, and the rest is asked for again.
//   - The limit applies to a member's first rendering and to the autoscaler's growth. A user's replicas stay, but Pods beyond the limit are
//     refused, first come, first served: TestPods.
//   - An admitted Pod counts before the cache has it, for half a minute at most: TestPodsOnTheirWayCount.
//   - I6: a lowered limit ends nothing.
//   - An unreadable entry stops growth, but not Pods already admitted.
//   - Nothing is decided before the limits have been read: TestNothingIsDecidedBeforeTheLimitsAreRead.
package quota
