// SPDX-License-Identifier: Apache-2.0

// Package serve serves the public API of hub or worker on one port: native gRPC, and REST/JSON translated from it, through the same
// interceptors to the same servers.
//
// In: services, interceptors, HTTP handlers. Out: a Server for a listener. The header Idempotency-Key becomes the claim key.
//
//   - HTTP/2's preface selects gRPC, on grpc-go's own transport; because net/http's costs twice as much. All else is HTTP/1.1; so REST has
//     no HTTP/2.
//   - ALPN offers http/1.1 first; because browsers and curl support both.
//   - A list of sandboxes with watch=true is WatchSandboxes as server-sent events (events.go).
//
// # What a caller can cost (I14)
//
// A caller costs others their fair share at most, before credentials next to nothing (Limits; limits_test.go; hub/flood_test.go).
//
//   - Connections are counted, in total and by address, before TLS. Each has one header, within the header timeout.
//   - What arrives before a caller is authenticated is read at a pace, by connection, by address, and in total in equal shares; later
//     calls and control frames at their caller's (meter.go, package pace). What was read is charged afterwards, so reads are small.
//   - Credentials come before a body is read or a message decoded (Options.Admit). Only health checks, few and never waiting, and the
//     OpenAPI document need none.
//   - A body has a size, no compression and a deadline; values, messages and levels are counted before it is decoded. A caller (a key, else
//     an address) sends 64 at a time; others wait, fewer the more callers there are.
//   - A gRPC connection has limited streams with fixed windows, and keepalive pings; a caller has limited calls in flight.
//   - gRPC calls are read no faster than callers are checked. A connection that takes no responses is not read; waiting responses are few
//     in all, also after their calls.
//   - Responses that are not taken yet have a budget of bytes, by caller and in all, taken before they are encoded (responses.go).
//   - A response that has begun has a deadline. A connection without a call is closed.
//   - Further's handlers bound their own conversations.
//   - Limit bounds other listeners' connections; Plain serves metrics and health.
//
// # What a page can do
//
// Without credentials, on loopback, only the browser keeps pages away. So an HTTP request:
//
//   - uses a known host name (Web); because a rebound one is unknown;
//   - comes from no page of another origin (Sec-Fetch-Site, Origin);
//   - has a JSON body; because pages send that elsewhere only after a preflight.
//
// gRPC is out of reach; because it needs HTTP/2 at once.
package serve
