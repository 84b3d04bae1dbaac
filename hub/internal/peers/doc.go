// SPDX-License-Identifier: Apache-2.0

// Package peers joins the replicas of a hub: each has the reports of all clusters, and reaches all of them.
//
// In: the members of package members, as hints; calls for clusters. Out: relayed sessions for the fleet, outcomes like those of package
// attach, tunnels. Both ends must present a hub's certificate: TestI12PeersAreHubsAlone.
//
// # One connection to each peer
//
//   - A replica dials every member. The connection carries reports of the clusters that are attached to the peer (package fleet: Inlet,
//     Relay), and calls and tunnels to them. A peer counts only after it has introduced itself by the member's name.
//   - A peer serves only the clusters that are attached to it, and forwards nothing; so a wrong hint costs one hop, and there are no loops:
//     TestAWrongHintCostsOneHop.
//
// # Outcomes of a dispatch
//
//	a stream of this replica                          as package attach says
//	no connected peer, or the peer says "not sent"    ErrNotConnected: nothing happened
//	the peer says "unclear", or the call to it fails  ErrUnclear
//	a claim without a key, and the peer is silent 1 s ErrUnclear: it may try another cluster
//
// If a peer does not confirm a call within a second, its cluster becomes the last choice here, as if a worker did not confirm it:
// TestOutcomesAcrossAReplica.
//
// A call may wait here for a cluster that attaches again (package attach). If the call was not sent and the cluster attached to a peer, the
// call goes to that peer. A call with the token of a tunnel does not; because the token is valid only here:
// TestACallFollowsAClusterThatRenewsAtAnotherReplica. A tunnel waits before it has a token, here or at the peer that the cluster has left,
// and is then opened where the cluster is attached: TestATunnelFollowsAClusterThatRenewsAtAnotherReplica.
//
// A dispatch carries the mark of the ledger of the caller's replica: TestI2AWorkerRemembersTheLedgerOfTheReplicaThatWrote.
//
// # Claims without a key
//
//   - When a caller leaves, the call at the peer ends, and package attach there releases a late sandbox.
//   - If a response is lost between the replicas, the caller's replica names the dispatch to the peer, again on the next relay, and the
//     peer releases the sandbox: TestI2ALostResponseIsReleased. If either process ends before that, the first-activity timeout ends the
//     sandbox.
//   - When a stream of a cluster ends at a replica, for example at one that was frozen, the replica names to every peer the calls that were
//     lost with it and the sandboxes that it could not release; because the worker reports their responses where it attaches next:
//     TestI2AReplicaThatWasFrozenNamesWhatItLost.
//
// # Bounds (I10, I14)
//
//   - The numbers of peers, of lost dispatches, and of granted claims that are remembered for them are bounded. Tunnels count at the
//     cluster's replica, with the same shares.
package peers
