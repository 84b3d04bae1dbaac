// SPDX-License-Identifier: Apache-2.0

// Package api implements the hub's public API: it authenticates callers and checks scopes.
//
// In: calls of atoll.sandbox.v1 (package serve). Out: responses of claims and fleet, or typed errors.
//
//   - The keys file and logs contain the SHA-256 of a token, never the token.
//   - A changed keys file is reloaded; while it is unreadable, the previous keys stay.
//   - Without any way to authenticate, every caller may do everything, on loopback only.
//   - Scopes: read shows; claim shows, creates and ends sandboxes; admin does everything.
//   - A caller sees and names only its key's team, user and namespaces. Access to all must be explicit (allTeams, allNamespaces): a key
//     without a team reaches only what has no team, and a key without namespaces reaches nothing.
//   - A call about an Env needs a key for all teams. A call about the whole hub (drain, forget, back up, accept a loss) also needs all
//     namespaces.
//   - A watch ends once its caller's permissions change, and a conversation once its caller may no longer reach its sandbox or cluster;
//     because both outlast the check at their start: TestWatchesEndWithTheirKey, TestConversationsEndWithThePermissionForTheirSandbox,
//     TestConversationsEndWithTheAuthorizersPermission. A conversation continues if its caller gets more permissions:
//     TestConversationsGoOnWithMoreScopes.
//   - While an Authorizer does not respond, its last result counts for conversations, and for a watch until the watch needs a new decision.
//     If another Authorizer withdraws a permission meanwhile, they end; because a revoked binding must take effect:
//     TestConversationsGoOnWhileOneOfTwoAuthorizersIsAway, TestAWatchGoesOnUntilItHasToAsk,
//     TestABindingsEndHoldsWhileAnotherAuthorizerIsAway.
//   - Running watches and conversations with an API key are reviewed apart from those with other tokens; because an API server that does
//     not respond may have to check the other tokens: TestAReviewWaitsForNoOtherGuest.
//   - A call that is not implemented fails with UNIMPLEMENTED and names what is missing.
package api
