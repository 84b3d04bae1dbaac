// SPDX-License-Identifier: Apache-2.0

// Package localapi serves the public API for this worker's own cluster, without a hub (I8).
//
// In: calls by gRPC and REST on one port, on loopback unless callers can be authenticated, which is not supported yet. Out: the
// responses of packages claim, sandboxes and podtunnel. It keeps I8: claims need no hub.
//
//   - A create picks among the Env's pools here with pkg/router, the hub's own policies on a view of one cluster, and calls
//     package claim. After a refusal it tries the next pool; held by TestI8LocalClaims.
//   - A call that needs a hub, or that is not implemented, fails with UNIMPLEMENTED and the reason.
//   - Claim keys of this API have their own space, so that a key used at the hub and one used here never collide.
//   - With wait NONE a create returns as with ASSIGNED, because without a hub a claim is durable once its Pod carries it.
//   - The members of an Env in this cluster are refreshed here as at a hub.
//   - Package podtunnel serves logs, exec and ports as at a hub.
//   - Only the leader hands out Pods. Followers listen as well and forward calls to the leader, also for logs, exec and ports.
//     While they cannot reach it they respond with UNAVAILABLE. A conversation through a follower ends when another replica
//     leads, as one with the leader does.
package localapi
