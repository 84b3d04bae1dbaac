// SPDX-License-Identifier: Apache-2.0

// Package allotment divides the maxReplicas and minReplicas of scaling groups over clusters (I9), for a hub with --allotments.
//
// In: what workers report that they hold and need. Out: rooms and floors for each worker, and Shares for the API. pkg/allotpolicy decides.
//
//	service.go  the Service, and what it shows
//	lead.go     the one replica that divides: what it stores
//	ask.go      calls to clusters
//
// # In the store
//
//	allotments/epoch               counts the leaders
//	allotments/g/NS/ENV/GROUP      a group's Record
//	allotments/c/CLUSTER           the incarnation that rooms may be sent to
//	allotments/r/CLUSTER           an operator reclaims what this cluster may hold, once it is forgotten
//
// # Rules
//
//   - One replica leads. Every write is conditional on the leader's epoch: TestI9AnEarlierLeaderWritesNothing. After a failed write the
//     leader's term ends, and a new one begins.
//   - A room is stored before it is sent: TestI9RoomsAreStoredBeforeTheyAreSent.
//   - Each cluster has a goroutine, so a cluster that does not respond delays no others (I7). A cluster is called every two seconds, and as
//     soon as its rooms change. The goroutine ends when the cluster is forgotten: TestI10AForgottenClusterIsNotAsked.
//   - Nothing is divided before clusters had time to respond.
//   - While a cluster gets no claims (silent for 40 s, quarantined, or draining), the others keep its part of minReplicas as well. A new
//     leader that has not seen a cluster waits for the same time: TestOthersKeepTheFloorOfALostCluster.
//   - Workers that do not know rooms grow up to maxReplicas. Their reports are counted.
//   - A cluster's report counts only for Envs that it may serve (I15), and within bounds (I14). A cluster that claims to hold Pods that it
//     lacks takes room from the other clusters of that Env.
package allotment
