// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy serves /v1/clusters/{cluster}/proxy/…: the API server of a cluster, through the link.
//
// In: HTTP requests of authenticated callers with the permission to create clusters/proxy. Out: each request over a tunnel of its own to
// the cluster's worker, which makes the request as the caller; audit lines.
//
//	handler.go Handler: paths, checks, the reverse proxy
//	caller.go  pure: what a caller is called in a cluster
//	status.go  errors as Kubernetes' clients read them
//	audit.go   audit lines
//
// # Rules
//
//   - It is off unless --clusters-proxy is set; then no request reaches this package.
//   - A request needs the permission for every team and namespace on this cluster; because the cluster's RBAC, not Atoll's scopes, bounds
//     what is visible there. A refusal does not reveal whether the cluster exists: TestRefused, TestClustersProxyIsOffAndForFew (hub).
//   - No credentials of the caller cross the link: TestNoCredentialsCross. A request to impersonate others (kubectl --as) is refused, not
//     stripped; because the caller would otherwise act as another user than it requested.
//   - A cluster's response does not affect the hub's host: no cookies, no origin-wide headers, an opaque origin for pages, and redirects
//     only below the cluster's path: TestI15AClusterSpeaksForItselfAlone.
//   - Only problems of the hub are rewritten for Kubernetes clients. A problem in a cluster's response is streamed as it is:
//     TestAnApplicationsProblemPasses.
//   - When a request ends, through its caller, its key, or the hub, its tunnel ends, and so does the request at the API server:
//     TestATunnelEndsWithItsRequest.
//   - Tunnels count against their caller's account (I14). Bodies are streamed, and headers are bounded. Nothing is buffered.
//   - Each request that may change something has an audit line with method and path, but without query and body, which may contain secrets.
//     Whether a request may change something is decided by the decoded path; because the API server routes by that: TestAudit.
//   - Clusters at other replicas are reached in the same way as their sandboxes (package peers).
package kubeproxy
