// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy forwards requests of the hub's callers to this cluster's API server.
//
// In: a tunnel of the link with one HTTP/1.1 request, and its caller, as the hub says. Out: that request at the API server, under the
// identity of a ServiceAccount of its own that may only impersonate. The cluster's RBAC decides what the caller may do.
//
//	names.go  pure: the user and groups that are impersonated
//	header.go pure: which headers of a request pass
//	proxy.go  Proxy: serves tunnels
//	conn.go   a tunnel as a net.Conn
//
// # Rules
//
//   - A request acts as the caller, never as the worker. Each name begins with this worker's prefix, whatever the hub has sent, so that
//     none is a user or group of the cluster's own, such as system:masters: TestNames.
//   - Only listed headers pass. The list has no header that identifies a caller (Authorization, Cookie, Impersonate-*, X-Remote-*). Bearer
//     tokens among WebSocket subprotocols do not pass either. This does not rely on the hub's own removal of them:
//     TestHeadersThatSmuggleAnIdentity.
//   - A tunnel carries one request; because each is authorized at the hub. Upgrades pass (exec, attach, port-forward).
//   - A tunnel that ends cancels its request at the API server: TestACancelledRequestIsCancelledAtTheAPIServer.
//   - Bodies are streamed in both directions with flow control; the API server bounds them. A request's header has bounds in bytes and
//     time, and the number of tunnels is bounded (I10, I14): TestI14ProxiedRequestsAreBounded.
//   - A refusal of the worker's own credentials is a 502; because a 401 would tell the caller that its own are not valid.
package kubeproxy
