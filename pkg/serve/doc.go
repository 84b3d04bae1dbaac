// SPDX-License-Identifier: Apache-2.0

// Package serve answers Atoll's public API on one port: gRPC as it is, REST/JSON translated from it, both through the
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
package serve
