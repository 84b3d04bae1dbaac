// SPDX-License-Identifier: Apache-2.0

// Package access decides which caller may do what, for the hub and for a worker's local API.
//
// In: a token and a method. Out: the Identity of the caller, and the Grant, which is where the caller has the permission that the method
// needs.
//
//	permission.go  Permission, and the single table from methods and conversations to permissions
//	identity.go    Identity, Authenticator, and their Chain
//	grant.go       Authorizer, Grant and Scope: in which namespaces, Envs and clusters, and for which teams, a permission holds
//	role.go        the built-in roles
//	policy.go      Policy: roles and bindings, evaluated; it is an Authorizer
//	problem.go     the errors of callers that lack a permission
//
// # The table
//
// Methods are in api/sandbox/v1/sandbox_permissions.yaml, with their reach and whether they change something. `make generate` fails for a
// method that is missing there. What is not in protobuf (conversations with sandboxes, reflection) is in permission.go. A method that is in
// neither requires a permission that only the role admin has.
//
// # Rules
//
//   - A caller may do what any of its roles permits. Its roles are those of its key's scopes, which hold within the key's own team, user
//     and namespaces, and those bound to its user, its groups, its key or its team.
//   - A binding holds in its namespaces, there for its Envs, and on its clusters. It covers the sandboxes of the caller's own team or, with
//     allTeams, of all teams.
//   - A key that names namespaces is limited to them, whatever is bound to it.
//   - A permission whose reach is the hub requires a binding over all namespaces, Envs and clusters. For clusters and clusters/proxy a
//     binding may name clusters; because these calls name their cluster and check it: TestGrants, TestABindingForClustersIsNotForTheHub
//     (hub/internal/api).
//   - An object that a caller may not see does not exist for it: NOT_FOUND, with the same message. An action that the caller may not do to
//     an object it sees is FORBIDDEN, which names the permission.
//   - Calls with different reaches may need the same permission. can-i and who-can use the least of these reaches; because with a greater
//     one they would deny what a call permits: TestAPermissionHasItsLeastReach.
//   - While one of several Authorizers is not available, calls are decided by what the others permit, and the Grant contains the error
//     (Away). A call that would otherwise be FORBIDDEN or NOT_FOUND fails with that error; lists contain what the others permit:
//     TestEitherAddsAndNeverTakesAway, TestWhatOthersPermitWhileAnAuthorizerIsAway (hub/internal/api).
//   - Every caller may check its own access.
package access
