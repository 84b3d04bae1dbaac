// SPDX-License-Identifier: Apache-2.0

// Package reach connects callers to sandboxes: it serves the REST paths logs, exec and ports of hub and worker, and defines the
// Tunnel that carries a conversation over every hop.
//
// In go HTTP requests and an Opener. A worker's Opener connects to a Pod; a hub's Opener asks the sandbox's cluster. Out come
// conversations. The Opener decides what a caller may reach.
//
// # The three paths
//
//	GET /v1/sandboxes/{id}/logs          text, as printed; container, follow, tail, since, timestamps
//	GET /v1/sandboxes/{id}/exec          WebSocket, v5.channel.k8s.io of Kubernetes (v4 too); command (once for each
//	                                     argument), stdin, stdout, stderr, tty, container
//	GET /v1/sandboxes/{id}/ports/{port}  WebSocket with the subprotocol tcp.atoll.navix.sh: a TCP connection. Binary messages
//	                                     are the data; an empty message is a FIN
//	ANY /v1/sandboxes/{id}/ports/{port}/ HTTP to that port, upgrades to WebSocket included
//
// A refusal is a problem document, sent before any upgrade; because the sandbox is reached first. A log that breaks off gives
// the reason in the trailer Atoll-Error. A broken exec gives it on the error channel, and never looks like an exit code.
//
// # Flow control
//
// Every hop copies one message at a time, and reads the next when the last was taken. Data that a slow reader does not read
// waits in windows of fixed size, one for each conversation, and at its source (I10). No hop has a queue, and no two
// conversations share one.
//
// # What a sandbox can cost (I14)
//
// At each hop a conversation holds one message of 32 KiB in each direction, a WebSocket's buffers, and a window of 256 KiB of
// its tunnel. It counts against its sandbox's 128, its cluster's 2,048 and, at a hub, its API key's 512 conversations, and in
// the tunnel metrics. A team (at a hub the caller's, at a worker the sandbox's) has 1,024 at most, and never more than are free
// for others: the next one finds room; held by TestI14SharesOfConversations. The header of a response from a port is limited to
// 64 KiB in 256 lines, informational responses included,
// and to 10 s from its first byte; held by TestI14AResponsesHeaderIsBounded. The body is streamed.
//
// # Isolation
//
//   - A request forwarded to a port has no Authorization header; because that holds the caller's credentials for Atoll.
//   - Redirects and cookies of a response stay below the port's path, and headers for the whole host are dropped; because other
//     sandboxes share the host; held by TestASandboxSpeaksForItselfAlone and TestRedirectsLeadBelowThePort.
//   - A connection to a port serves one request; because the next request is authorized again.
//   - Requests from pages of other origins are refused (permit).
//   - At a path, a page of a sandbox has an opaque origin (Content-Security-Policy: sandbox); because exec and other sandboxes
//     are on the same host. Such a page renders, runs scripts and loads its own resources. It cannot read responses, keep a
//     session or open WebSockets.
//   - At a host of its own, PORT-ID.DOMAIN, a page has a normal origin. http://8000-01h…-east.localhost:8080/ works where there
//     are no API keys; because browsers resolve every name below localhost to their own machine.
//
// # Half-open connections
//
// The kernel's keepalive finds hosts that are gone. A missing pong proves nothing, because a slow reader does not send one
// either. Unsolicited pongs keep middleboxes from dropping the connection, and satisfy clients that expect a sign of life.
package reach
