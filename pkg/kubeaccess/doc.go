// SPDX-License-Identifier: Apache-2.0

// Package kubeaccess delegates authentication and authorization to a Kubernetes cluster, with the libraries of its API server.
//
// In go a token, or an identity and a permission; out come an access.Identity by TokenReview and an access.Grant by SubjectAccessReview.
// A platform team writes plain RBAC about the resources of API group atoll.navix.sh, which has no objects: sandboxes, sandboxes/exec,
// envs and the others of package access.
//
// # Rules
//
//   - Outcomes are cached for seconds: what is permitted for --auth-kubernetes-ttl, what is not for a third of it. That is how late a
//     change of RBAC, or a token that was deleted, is noticed.
//   - Callers with the same question wait for one request. Tokens that the API server has not seen cost it at most 50 requests a second,
//     whatever callers send (I14).
//   - While the API server does not respond, what is cached holds; everything else is UNAVAILABLE after three seconds.
//   - A permission is asked about for all namespaces first. If it does not hold there, a call asks about the namespaces that it concerns.
package kubeaccess
