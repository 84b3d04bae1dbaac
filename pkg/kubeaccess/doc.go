// SPDX-License-Identifier: Apache-2.0

// Package kubeaccess delegates authentication and authorization to a Kubernetes cluster, with the libraries of its API server.
//
// In: a token, or an identity and a permission. Out: an access.Identity by TokenReview, or an access.Grant by SubjectAccessReview. A
// platform team writes plain RBAC for the resources of API group atoll.navix.sh, which has no objects: sandboxes, sandboxes/exec, envs and
// the others of package access.
//
// # Rules
//
//   - Results are cached: an allowed one for --auth-kubernetes-ttl, a denied one for a third of it. A change of RBAC, or the deletion of a
//     token, takes effect with that delay: TestAResultIsCachedForItsTimeOnly, TestEveryPermissionOfEveryRole, TestAChangeOfRBACIsNoticed.
//   - Callers with the same question share one request. Tokens that are not cached cause at most 50 requests per second to the API server,
//     whatever callers send: TestI14RequestsAreBounded. API keys and long tokens cause none: TestIdentityOfATokenReview.
//   - While the API server does not respond, cached results remain valid; everything else is UNAVAILABLE after three seconds:
//     TestI8AnAPIServerThatIsAway, TestI8ASilentAPIServerIsUnavailableAfterThreeSeconds.
//   - A permission is first checked for all namespaces. If it is not granted there, a call checks the namespaces that it concerns:
//     TestEveryPermissionOfEveryRole.
package kubeaccess
