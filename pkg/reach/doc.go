// SPDX-License-Identifier: Apache-2.0

// Package reach is how callers get into sandboxes: what hub and worker answer on the REST paths logs, exec and ports, and the
// Tunnel that carries it, whatever lies in between.
//
// In go HTTP requests and an Opener, which at a worker reaches into a Pod and at a hub asks the sandbox's cluster; out come
// conversations. The Opener decides who may reach what.
//
// # The three paths
//
//	GET /v1/sandboxes/{id}/logs          text, as it is printed; container, follow, tail, since, timestamps
//	GET /v1/sandboxes/{id}/exec          WebSocket, v5.channel.k8s.io as Kubernetes speaks it (v4 as well); command (once for
//	                                     each argument), stdin, stdout, stderr, tty, container
//	GET /v1/sandboxes/{id}/ports/{port}  WebSocket of the subprotocol tcp.atoll.navix.sh: a TCP connection. Binary messages are
//	                                     what is said, an empty one says that its sender has nothing more to say
//	ANY /v1/sandboxes/{id}/ports/{port}/ HTTP to that port, upgrades to WebSocket included
//
// A refusal is a problem document, before any upgrade: the sandbox is reached first. A log that broke off says why in the
// trailer Atoll-Error; a broken exec says so on the error channel, and never looks like an exit code.
//
// # Flow control
//
// Every hop copies one message at a time, and reads the next when the last has been taken: what a slow reader does not read
// waits in windows of fixed size, one for each conversation, and at its source (I10). No hop has a queue, and no two
// conversations share one.
//
// # What a sandbox can cost (I14)
//
// A conversation holds a message of 32 KiB in each direction at each hop, a WebSocket's buffers, and a window of 256 KiB of its
// tunnel; it counts against its sandbox's 128, its cluster's 2,048, and at a hub its API key's 512, and shows in the metrics
// of tunnels. The header of a response from a port has 64 KiB in 256 lines, informational ones included, and arrives within
// 10 s of its first byte; its body is passed on as it comes.
//
// # Who sees what
//
// What is forwarded to a port is without the caller's credentials for Atoll (Authorization); what comes back keeps its redirects
// and cookies below the port's path, and says nothing for the whole host. A connection to a port serves one request: whoever
// asks next is looked at again. Pages of other origins cannot get in (permit).
//
// At a path, a page of a sandbox is of no origin (Content-Security-Policy: sandbox): exec and other sandboxes are at the same
// host. It shows, runs scripts and loads what belongs to it, and cannot read responses, keep a session or open WebSockets. At a
// host of its own, PORT-ID.DOMAIN, it is a page like any other: http://8000-01h…-east.localhost:8080/ works where there
// are no API keys, since browsers take every name below localhost for their own machine.
//
// # Half-open connections
//
// The kernel's keepalive finds hosts that are gone. Nothing is concluded from a peer that does not answer pings, since a
// slow reader does not either; unasked-for pongs keep middle boxes awake, and clients that expect a sign of life content.
package reach
