// SPDX-License-Identifier: Apache-2.0

// Package peers joins the replicas of a hub: each has the reports of all clusters, and reaches all of them.
//
// In: the members of package members, as hints; calls for clusters. Out: relayed sessions for the fleet, outcomes as those of package
// attach, tunnels. Both ends show a hub's certificate: TestI12PeersAreHubsAlone.
//
// # One connection to each peer
//
//   - A replica dials every member. Over the connection come the reports of the clusters that are attached there (package fleet: Inlet,
//     Relay), and calls and tunnels go to these. Only a peer that has introduced itself by its member's name counts.
//   - A peer serves what is attached to it, and passes nothing on; so a wrong hint costs one hop, and there are no loops:
//     TestAWrongHintCostsOneHop.
//
// # Outcomes of a dispatch
//
//	a stream of this replica                          as package attach says
//	no connected peer, or the peer says "not sent"    ErrNotConnected: nothing happened
//	the peer says "unclear", or the call to it fails  ErrUnclear
//	a claim without a key, and the peer is silent 1 s ErrUnclear: it may try another cluster
//
// A peer that does not confirm a call within a second makes the cluster the last choice here, as a worker does.
//
// TestOutcomesAcrossAReplica.
//
// A call that waits for a cluster which attaches again (package attach), and was not sent, goes to the peer to which that has attached. One
// with a token of a tunnel does not; because the token is valid here alone: TestACallFollowsAClusterThatRenewsAtAnotherReplica. A tunnel
// waits before it has a token, and is opened where the cluster is then: TestATunnelFollowsAClusterThatRenewsAtAnotherReplica.
//
// A dispatch has the mark of its caller's ledger: TestI2AWorkerRemembersTheLedgerOfTheReplicaThatWrote.
//
// # Claims without a key
//
//   - A caller that leaves ends the call at the peer, where package attach releases a late sandbox.
//   - A response that is lost between the replicas: the caller's replica names the dispatch, on the next relay as well, and the peer
//     releases the sandbox: TestI2ALostResponseIsReleased. If either process ends before, the first-activity timeout ends the sandbox.
//   - A replica whose stream of a cluster ends, such as one that was frozen, names the calls that are lost with it, and what it could not
//     release, to every peer; because the worker names their responses where it is back: TestI2AReplicaThatWasFrozenNamesWhatItLost.
//
// # Bounds (I10, I14)
//
//   - Peers, dispatches that were lost, and granted claims that are remembered for them have bounds. Tunnels count at the cluster's
//     replica, by the same shares.
package peers
