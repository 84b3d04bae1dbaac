// SPDX-License-Identifier: Apache-2.0

// Package access decides who may do what: for the hub, and for a worker's local API.
//
// In go a token and a method; out come the Identity of the caller and the Grant: where the permission holds that the method needs.
//
//	permission.go  Permission, and the one table from methods and conversations to permissions
//	identity.go    Identity, Authenticator, and their Chain
//	grant.go       Authorizer, Grant and Scope: in which namespaces, Envs and clusters, and for which teams, a permission holds
//	role.go        the built-in roles
//	policy.go      Policy: roles and bindings, evaluated; it is an Authorizer
//	problem.go     the errors of callers that may not
//
// # The table
//
// Methods are in api/sandbox/v1/sandbox_permissions.yaml, with their reach and whether they change something. `make generate` fails for a
// method that is not there. What the protobuf does not have (conversations with sandboxes, reflection) is in permission.go. A method that
// is in neither needs a permission that only the role admin has.
//
// # Rules
//
//   - A caller may do what any of its roles permits: those of its key's scopes, which hold within the key's own team, user and namespaces,
//     and those that are bound to its user, its groups, its key or its team.
//   - A binding holds in its namespaces, there for its Envs, and on its clusters. It shows the sandboxes of the caller's own team, or, with
//     allTeams, of all.
//   - A key that names namespaces stays within them, whatever is bound to it.
//   - A permission whose reach is the hub holds by a binding over all namespaces, Envs and clusters. For clusters and clusters/proxy a
//     binding may name some; because these calls name their cluster, and check it: TestGrants, TestABindingForClustersIsNotForTheHub
//     (hub/internal/api).
//   - What a caller may not see is not there: NOT_FOUND, in the same words. What it may see and not do is FORBIDDEN, which names the
//     permission.
//   - Calls of several reaches may need the same permission. Its own reach, by which can-i and who-can go, is the least of these; because
//     they would deny what a call permits: TestAPermissionHasItsLeastReach.
//   - While one of several Authorizers cannot be asked, calls go by what the others permit, and the Grant has its error (Away). A method
//     for which that does not suffice fails with the error, and so does what would be FORBIDDEN or NOT_FOUND; lists show what the others
//     permit: TestEitherAddsAndNeverTakesAway, TestWhatOthersPermitWhileAnAuthorizerIsAway (hub/internal/api).
//   - Every caller may check its own access.
package access
