// SPDX-License-Identifier: Apache-2.0

// Package quota is an admission plugin that limits what a team may hold in this cluster, over all its pools together.
//
// What goes in: the ConfigMap atoll-team-quotas of the worker's namespace, read by limits.go, and the pools and Envs of
// the cache, of which gather.go makes a Snapshot. What comes out: a Verdict, by Decide, which is pure. A team is the value
// of the label scheduling.navix.sh/team of a pool; pools without one have no limit.
//
//	data:
//	  ml: |                # the team; _default is for all that have no entry
//	    maxReplicas: 40    # Pods, idle ones included
//	    cpu: "80"          # sum of the Pods' requests, as a scheduler counts them
//	    memory: 256Gi      # what is left out is not limited
//
// A pool holds as many replicas as are asked for, in its spec or its member's, or as there are Pods if these are more. A
// member that is frozen in its Env counts before its pool is made.
//
// # Two pools, one last place
//
// What is admitted is not in the cache yet. Until it is, a reservation stands for it: one a pool, replaced when the same
// pool asks again, gone when the cache shows what it was for, or after half a minute if whoever asked has failed. All
// questions are answered under one lock. After a crash no reservation is needed: what was frozen or written counts, and what
// was not is asked for again.
//
// # Who is asked
//
// What Atoll writes on its own, the first rendering of a member and the autoscaler's growth, is held to the limit. Replicas
// that a user sets are his decision and stay as they are; Pods beyond the limit are refused one by one, first come, first
// served among the team's pools. Those that were on their way when a team got over its limit count once the cache has them.
//
// I6: a limit that is lowered ends nothing; the team grows no more until it is below. An entry that cannot be read stops
// growth, and no Pod: what was admitted is filled up as before.
package quota
