// SPDX-License-Identifier: Apache-2.0

// Package serve serves Atoll's public API on one port: gRPC as it is, REST/JSON translated from it, both through the
// same interceptors to the same servers. Hub and worker use it.
//
// In go the services, the interceptors that know callers and limits, and further HTTP handlers; out comes a Server to be
// run on a listener. Errors leave as gRPC statuses with details, or over REST as application/problem+json; a header
// Idempotency-Key becomes the claim key. Reflection, gRPC health, /healthz and /openapi.json are part of it.
//
// A connection is told apart by its first bytes: whoever opens with HTTP/2's preface speaks gRPC and gets grpc-go's own
// transport, which costs about half of what net/http's does; everybody else is HTTP/1.1. Over TLS, ALPN offers http/1.1
// before h2: a browser or curl, which know both, take the first, and a gRPC client, which knows only h2, the second. So
// REST over HTTP/2 is not served.
//
// A REST call goes straight into the service's method, with no connection in between.
//
// # What a caller can cost (I14)
//
// What one caller sends costs the others nothing but their fair share; before it has shown credentials it costs next to
// nothing. Limits has the numbers:
//
//   - Connections are counted, in all and by address, as they are accepted, before TLS. Each costs a goroutine, a few buffers
//     and at most one header: 32 KiB in at most 256 lines, for at most the header timeout.
//   - Credentials are asked for before a body is read or a message decoded: Options.Admit, in front of REST, of gRPC's
//     methods and of Further. Without them only health checks and the OpenAPI document are served.
//   - A body has 256 KiB at most, is not compressed, and arrives in time. What it would be decoded into is counted before it is:
//     values and levels of JSON, messages and levels of protobuf. Of one caller, known by key or else by address, 64 bodies are
//     received at one time; others wait, fewer of them the more callers there are. Health checks do not wait, and are few.
//   - A gRPC connection has 1,000 streams at most, each with a window of fixed size, and is asked for signs of life. A caller has
//     10,000 calls under way, over however many connections.
//   - Calls over gRPC are read no faster than their callers are looked at, and a connection that takes no responses is not read.
//   - A response leaves in time once it has begun. A connection without a call ends.
//
// Further is for conversations, which may last and send any amount: its handlers bound what they hold by windows of their own.
// The tests that name I14 are in limits_test.go; hub/flood_test.go measures a hub's memory.
//
// # What a page can do
//
// Without credentials, on loopback, a browser is what stands between the pages that a person looks at and this server. So a
// request over HTTP must go by a name that is known (Web), which a name that was rebound to this machine is not; must not come
// from a page of another origin (Sec-Fetch-Site, Origin); and has a body of JSON, which pages cannot send to other origins
// unasked. gRPC is out of their reach: it needs HTTP/2 from the first byte.
//
// Limit bounds the connections of other listeners, such as those of the link until a certificate was shown; Plain serves
// metrics and health.
package serve
