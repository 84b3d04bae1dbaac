// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy serves /v1/clusters/{cluster}/proxy/…: the API server of a cluster, through the link.
//
// In: HTTP requests of authenticated callers who have the permission to create clusters/proxy. Out: each request over a tunnel of its own,
// to the cluster's worker, which makes it as the caller; audit lines.
//
//	handler.go Handler: paths, checks, the reverse proxy
//	caller.go  pure: what a caller is called in a cluster
//	status.go  errors as Kubernetes' clients read them
//	audit.go   audit lines
//
// # Rules
//
//   - It is off unless --clusters-proxy is given; then nothing here is reached.
//   - A request needs the permission for every team and namespace, on this cluster; because the cluster's RBAC, not Atoll's scopes,
//     bounds what is seen there. A refusal has the same words whether there is such a cluster or not: TestRefused,
//     TestClustersProxyIsOffAndForFew (hub).
//   - No credentials of the caller cross the link: TestNoCredentialsCross. A request to impersonate others (kubectl --as) is refused, not
//     stripped; because the caller would act as another user than it asked for.
//   - What a cluster sends does not affect the hub's host: no cookies, no origin-wide headers, an opaque origin for pages, redirects below
//     the cluster's path alone: TestI15AClusterSpeaksForItselfAlone.
//   - A request that ends, by its caller, its key, or the hub, ends its tunnel, and so the request at the API server:
//     TestATunnelEndsWithItsRequest.
//   - Tunnels count against their caller's account (I14). Bodies stream; headers have bounds. Nothing is buffered.
//   - Each request that may change something has a line of audit, with method and path; queries and bodies have secrets. What may is
//     read from the decoded path; because the API server routes by that: TestAudit.
//   - Other replicas' clusters are reached as their sandboxes are (package peers).
package kubeproxy
