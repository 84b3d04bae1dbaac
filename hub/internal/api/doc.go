// SPDX-License-Identifier: Apache-2.0

// Package api implements the hub's public API: it authenticates callers and checks scopes.
//
// In: calls of atoll.sandbox.v1 (package serve). Out: responses of claims and fleet, or a typed error.
//
//   - Keys file and logs have a token's SHA-256, never the token.
//   - A changed keys file is reloaded; while it is unreadable, the previous keys stay.
//   - Without one every caller may do everything, on loopback only.
//   - Scopes: read shows; claim shows, creates and ends sandboxes; admin does everything.
//   - A caller sees and names its key's team, user and namespaces only. All is explicit (allTeams, allNamespaces): no team covers what has
//     no team; no namespaces, nothing.
//   - A call about an Env needs a key for all teams, one about the whole hub (drain, forget, back up, accept a loss) for all namespaces
//     too.
//   - A watch ends once its caller's permissions change, a conversation once its sandbox or cluster is not open to its caller any more;
//     because both outlast every check at their begin: TestWatchesEndWithTheirKey, TestConversationsEndWithThePermissionForTheirSandbox,
//     TestConversationsEndWithTheAuthorizersPermission. A conversation goes on with more permissions: TestConversationsGoOnWithMoreScopes.
//   - While an Authorizer cannot be asked, what it gave last counts for conversations, and for a watch until it has to ask. What others
//     take back meanwhile ends them; because a binding that is revoked is revoked: TestConversationsGoOnWhileOneOfTwoAuthorizersIsAway,
//     TestAWatchGoesOnUntilItHasToAsk, TestABindingsEndHoldsWhileAnotherAuthorizerIsAway.
//   - What has begun with an API key is reviewed apart from what has with other tokens; because these may have to be checked by an API
//     server that does not respond: TestAReviewWaitsForNoOtherGuest.
//   - A call that is not implemented fails with UNIMPLEMENTED and names what is missing.
package api
