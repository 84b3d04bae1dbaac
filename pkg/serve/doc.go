// SPDX-License-Identifier: Apache-2.0

// Package serve serves the public API of the hub or a worker on one port: native gRPC, and REST/JSON that is translated to gRPC. Both pass
// the same interceptors and reach the same servers: TestInterceptorsSeeBothProtocols.
//
// In: services, interceptors, HTTP handlers. Out: a Server for a listener. The header Idempotency-Key becomes the claim key:
// TestIdempotencyKeyIsTheClaimKey.
//
//   - The HTTP/2 preface selects gRPC, on grpc-go's own transport; because net/http's costs twice as much. Every other connection is
//     HTTP/1.1; so REST has no HTTP/2. ALPN offers http/1.1 first; because browsers and curl support both: TestBothProtocolsOnOnePort.
//   - The list of sandboxes with watch=true serves WatchSandboxes as server-sent events (events.go): TestWatchesAreServerSentEvents.
//
// # Limits on a caller (I14)
//
// A caller uses at most its fair share of the server, and almost nothing before it is authenticated (Limits):
// TestI14StrangersCostTheHubNothing of the hub.
//
//   - Connections are limited before the TLS handshake, in total and per address: TestI14ConnectionsAreBounded,
//     TestI14ConnectionsCountBeforeTheirHandshake. Each header has a maximum size, and must arrive within the header timeout:
//     TestI14RequestsAreBounded, TestI14SlowCallersAreEnded.
//   - Before a caller is authenticated, its input is read at a limited rate: per connection, per address, and in total in equal shares:
//     TestI14FloodsAreReadAtAPace, TestI14AddressesHaveTheirOwnPace, TestI14ListenersPaceConnections, TestPacedConnectionsEnd;
//     TestManyPartiesShareWhatThereIs of package pace. Afterwards, calls and control frames are charged to the caller's own rate
//     (meter.go): TestI14CallsHaveARate. Input is charged after it is read, so reads are small: TestI14StrangersAreReadInSmallPieces.
//   - A caller is authenticated before a body is read or a message is decoded (Options.Admit). Only health checks and the OpenAPI document
//     need no credentials: TestI14CredentialsComeBeforeTheBody. Health checks are few and never wait: TestI14HealthChecksAreFew.
//   - A body has a maximum size and a deadline, and is not compressed. Its values, messages and levels are counted before it is decoded:
//     TestI14RequestsAreBounded, TestI14SlowCallersAreEnded, TestCheckProtoTakesAnything, FuzzShape.
//   - A caller (a key, else an address) sends 64 bodies at a time. Further bodies wait; the more callers there are, the fewer may wait:
//     TestI14EachCallerHasAShare, TestI14IntakeIsShared.
//   - A gRPC connection has keepalive pings and a limited number of streams with fixed windows: TestI14PingsAreBounded,
//     TestI14StreamsAreBounded, TestI14WindowsAreFixed. A caller has a limited number of calls in flight: TestI14EachCallerHasItsCalls.
//   - gRPC calls are read no faster than their callers are checked: TestI14CallsAreLookedAtAsTheyCome. A connection is not read while its
//     peer takes no responses: TestI14WhoDoesNotReadIsNotRead. The responses that wait are limited over all connections, also after their
//     handlers have returned: TestI14UntakenResponsesAreFew, TestUntakenForgets.
//   - Responses that are not taken yet have a budget of bytes, per caller and in total. It is reserved before they are encoded
//     (responses.go): TestI14UntakenResponsesHaveABudget, TestI14CallersShareTheBudgetOfResponses. The kernel holds little more:
//     TestI14WhatAPeerDoesNotReadIsBounded.
//   - A response has a deadline once it has begun: TestI14ResponsesAreTakenInTime, TestI14AnUntakenResponseHasADeadline,
//     TestI14AWatchThatIsNotTaken. A connection without a call is closed: TestI14SlowCallersAreEnded.
//   - The handlers of Options.Further set their own limits: TestBothProtocolsOnOnePort, TestI14SlowCallersAreEnded.
//   - Limit bounds the connections of other listeners: TestI14TheLinkBoundsStrangers of the hub. Plain serves metrics and health:
//     TestI14PlainIsBounded.
//
// # Requests from web pages
//
// A server on loopback may require no credentials; then only the browser keeps web pages away from it:
// TestPagesOfOthersHaveNoAccess, FuzzWeb. So an HTTP request must
//
//   - use a known host name (Web); because a rebound name is unknown;
//   - not come from a page of another origin (Sec-Fetch-Site, Origin);
//   - have a JSON body; because a page can send JSON to another origin only after a preflight.
//
// A page cannot use gRPC; because a gRPC connection starts with HTTP/2: TestPagesCannotUseGRPC.
package serve
