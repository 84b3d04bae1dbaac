// SPDX-License-Identifier: Apache-2.0

// Package serve serves Atoll's public API on one port: native gRPC, and REST/JSON translated from it, both through the same
// interceptors to the same servers. Hub and worker use it.
//
// In go the services, the interceptors for authentication and limits, and further HTTP handlers; out comes a Server to run on a
// listener. Errors are gRPC statuses with details, or over REST application/problem+json; a header Idempotency-Key becomes the
// claim key. Reflection, gRPC health, /healthz and /openapi.json are included.
//
// A connection's first bytes decide its protocol: HTTP/2's preface means gRPC, on grpc-go's own transport, which costs about half
// of net/http's; anything else is HTTP/1.1. Over TLS, ALPN offers http/1.1 before h2: a browser or curl, which support both, take
// the first, and a gRPC client, which supports only h2, the second. So REST over HTTP/2 is not served.
//
// A REST call calls the service's method directly, without a connection in between.
//
// # What a caller can cost (I14)
//
// A caller's input costs other callers nothing but their fair share, and next to nothing before the caller has shown credentials.
// Limits has the numbers:
//
//   - Connections are counted, in total and by address, when they are accepted, before TLS. Each costs a goroutine, a few buffers
//     and at most one header: 32 KiB in at most 256 lines, for at most the header timeout.
//   - Credentials are checked before a body is read or a message decoded: Options.Admit, in front of REST, of gRPC's methods and
//     of Further. Without credentials only health checks and the OpenAPI document are served.
//   - A body has 256 KiB at most, is not compressed, and has a deadline. Its decoded size is counted before it is decoded: values
//     and levels of JSON, messages and levels of protobuf. 64 bodies of one caller, identified by key or else by address, are
//     received at a time; others wait, and the more callers there are the fewer may wait. Health checks do not wait, and are few.
//   - A gRPC connection has 1,000 streams at most, each with a window of fixed size, and keepalive pings. A caller has 10,000
//     calls in flight, over any number of connections.
//   - Calls over gRPC are read no faster than their callers are checked, and a connection that takes no responses is not read.
//   - Responses over gRPC that wait for their callers to take them are few in all, also after their calls have ended.
//   - A response has a deadline once it has begun. A connection without a call is closed.
//
// Further is for conversations, which may last and send any amount: its handlers bound what they hold by windows of their own.
// The tests that name I14 are in limits_test.go; hub/flood_test.go measures a hub's memory.
//
// # What a page can do
//
// Without credentials, on loopback, only the browser separates the pages that a user opens from this server. So a request over
// HTTP:
//
//   - must use a known host name (Web); because a name that was rebound to this machine is unknown;
//   - must not come from a page of another origin (Sec-Fetch-Site, Origin);
//   - has a JSON body; because pages cannot send that to other origins without a preflight.
//
// gRPC is out of a page's reach: it needs HTTP/2 from the first byte.
//
// Limit bounds the connections of other listeners, such as those of the link until a certificate was shown; Plain serves
// metrics and health.
package serve
