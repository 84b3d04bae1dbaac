// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy serves requests of the hub's callers at this cluster's API server.
//
// In: a tunnel of the link with one HTTP/1.1 request, and who makes it, as the hub says. Out: that request at the API server, under the
// identity of a ServiceAccount of its own that may only impersonate. The cluster's RBAC decides what the caller may do.
//
//	names.go  pure: the user and groups that are impersonated
//	header.go pure: which headers of a request pass
//	proxy.go  Proxy: serves tunnels
//	conn.go   a tunnel as a net.Conn
//
// # Rules
//
//   - A request acts as the caller, never as the worker: each name begins with this worker's prefix, whatever the hub has sent, and so
//     none is a user or group of the cluster's own, such as system:masters: TestNames.
//   - Headers pass by a list. Those that say who a caller is are not in it (Authorization, Cookie, Impersonate-*, X-Remote-*), nor are
//     bearer tokens among WebSocket subprotocols. The hub's own removal of them is not relied on: TestHeadersThatSmuggleAnIdentity.
//   - A tunnel carries one request; because each is authorized at the hub. Upgrades pass (exec, attach, port-forward).
//   - A tunnel that ends cancels its request at the API server: TestACancelledRequestIsCancelledAtTheAPIServer.
//   - Bodies stream, in both directions, by flow control; the API server bounds them. A request's header has bounds in bytes and time, and
//     tunnels in number (I10, I14): TestI14ProxiedRequestsAreBounded.
//   - A refusal of the worker's own credentials is a 502; because a 401 would tell the caller that its own are not valid.
package kubeproxy
