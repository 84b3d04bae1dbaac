// SPDX-License-Identifier: Apache-2.0

// Package localapi serves the public API for this worker's own cluster, without a hub (I8).
//
// In: gRPC and REST calls on one port, on loopback, or at any address with a Gate and TLS: then callers show tokens of the cluster, and its
// RBAC determines their permissions (access.go). Out: the responses of packages claim, sandboxes and podtunnel.
//
//	localapi.go     the API, and how it is served
//	watch.go        changes of sandboxes
//	forward.go      calls that a follower passes on to the leader
//	access.go       the Gate: callers by tokens of the cluster, and their permissions
//	refresh.go      refreshes of an Env's members
//	sandboxes.go    creates, calls about sandboxes, claim keys
//	environment.go  the environment of a claim, and the callers of a key
//	envs.go         Envs, and where a claim would go
//
// # Rules
//
//   - A create picks among the Env's pools with pkg/router, whose policies the hub uses as well. It calls package claim, and after a
//     refusal tries the next pool. It waits in a pool's queue only if no pool had an idle Pod; because it does not move to another pool:
//     TestI8LocalClaims.
//   - A call that needs a hub fails with UNIMPLEMENTED and the reason.
//   - Claim keys have their own space; because they must not collide with the hub's.
//   - Package environment sets envVars, workdir, execUser, files and secrets only in the sandbox's daemon, before the sandbox is returned,
//     as at the hub: TestSecretsOfAClaim (e2e/e2b). If they cannot be set, the sandbox is released, unless another call with its key may
//     have returned it: TestI8LocalClaims, TestCallersOfAKey.
//   - Wait NONE acts as ASSIGNED; because a claim is durable when its Pod carries it.
//   - Refresh of members, watches, logs, exec and ports work as at a hub.
//   - Followers forward all calls to the leader, or respond with UNAVAILABLE. A conversation ends when another replica leads.
package localapi
