// SPDX-License-Identifier: Apache-2.0

// Package localapi serves the public API about this worker's own cluster, without a hub (I8).
//
// Calls come in by gRPC and REST on one port, on loopback unless callers can be told apart, which they cannot yet. A
// create picks among the Env's pools here with pkg/router, the hub's own policies on a view of one cluster, and goes to
// the claim service; a refusal moves on to the next pool. What only a hub can answer, and what is not built, answers
// UNIMPLEMENTED with the reason.
//
// Claim keys given here are a space of their own, so that a key used at the hub and one used here never meet. With wait
// NONE a create returns as with ASSIGNED: without a hub a claim is durable once its Pod carries it.
//
// An Env's members of this cluster are refreshed here as at a hub.
//
// Logs, exec and ports of sandboxes are answered as at a hub, by package podtunnel.
//
// Only the leader hands out Pods. Followers listen as well, and have the leader answer, also for logs, exec and ports; while
// they do not reach it they answer UNAVAILABLE. A conversation through a follower ends when another replica leads, as one with
// the leader itself does.
package localapi
