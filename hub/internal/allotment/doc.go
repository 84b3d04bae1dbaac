// SPDX-License-Identifier: Apache-2.0

// Package allotment divides the maxReplicas and minReplicas of scaling groups over clusters (I9), for a hub with --allotments.
//
// In: what workers say that they hold and need. Out: rooms and floors, to each worker, and Shares for the API. pkg/allotments decides.
//
//	service.go  the Service, and what it shows
//	lead.go     the one replica that divides: what it stores
//	ask.go      calls to clusters
//
// # In the store
//
//	allotments/epoch               counts the leaders
//	allotments/g/NS/ENV/GROUP      a group's Book
//	allotments/c/CLUSTER           the incarnation that rooms may be sent to
//	allotments/r/CLUSTER           an operator reclaims what this cluster may hold, once it is forgotten
//
// # Rules
//
//   - One replica leads. Every write is conditional on its epoch: TestI9AnEarlierLeaderWritesNothing. After a failed write it starts anew.
//   - What it sends is stored: TestI9RoomsAreStoredBeforeTheyAreSent.
//   - Each cluster has a goroutine, so one that does not respond costs the others nothing (I7). It is asked every two seconds, and as soon
//     as its rooms change.
//   - Nothing is divided before clusters had the time to answer.
//   - The others keep what a cluster keeps of minReplicas while that gets no claims: silent for 40 s, quarantined, or draining. A new
//     leader that has not seen a cluster waits as long: TestOthersKeepTheFloorOfALostCluster.
//   - Workers that know no rooms grow by maxReplicas alone. What they report counts.
//   - A cluster is believed about Envs that it may serve (I15), and what it says is bounded (I14). One that claims to hold Pods that it
//     lacks takes room from the other clusters of that Env.
package allotment
