// SPDX-License-Identifier: Apache-2.0

// Package reach serves the REST paths logs, exec and ports of hub and worker, at a hub files and processes as well, and defines the Tunnel
// that carries a conversation over every hop.
//
// In: HTTP requests and an Opener (to a Pod, or at a hub to the cluster), which decides what callers may reach. Out: conversations.
//
//	GET /v1/sandboxes/{id}/logs          text, as printed; container, follow, tail, since, timestamps
//	GET /v1/sandboxes/{id}/exec          WebSocket, Kubernetes' v5.channel.k8s.io (v4 too); command (once per argument), stdin,
//	                                     stdout, stderr, tty, container
//	GET /v1/sandboxes/{id}/ports/{port}  WebSocket, subprotocol tcp.atoll.navix.sh: a TCP connection. Binary messages are the data;
//	                                     an empty one is a FIN
//	ANY /v1/sandboxes/{id}/ports/{port}/ HTTP to that port, upgrades to WebSocket included
//	/v1/sandboxes/{id}/files, processes  by calls to the sandbox's daemon at its port (daemon.go, files.go, processes.go): docs/sandboxes.md
//
// A refusal is a problem document, before any upgrade. A log breaks with the trailer Atoll-Error, exec on the error channel, never as an
// exit code.
//
// # Files and processes
//
//   - The daemon has no token until the first call, which sets the hub's (package sandboxd); so a sandbox needs no set-up for it.
//   - Each call is a conversation with a port, and is recorded as files or processes. They need the permission of exec.
//   - So does a conversation with the daemon's port at the path ports, which is recorded as processes; because a caller of that port runs
//     commands and reads files: TestTheDaemonsPortIsProcesses, TestThePermissionOfPortsDoesNotReachTheDaemon (hub/internal/api).
//   - Files are streamed. A list and a command's output have bounds, which a caller may hold here.
//
// # What a sandbox can cost (I10, I14)
//
//   - A hop copies one message at a time and has no queue. What a slow reader leaves waits in its conversation's windows, of fixed size,
//     and at its source.
//   - At each hop a conversation holds one message in each direction, a WebSocket's buffers, and its tunnel's window. It counts against its
//     sandbox, its cluster and, at a hub, its API key (Shares).
//   - A team (at a hub the caller's, at a worker the sandbox's) has a share, and no more conversations than are free for others:
//     TestI14SharesOfConversations.
//   - What it carries is paced by sandbox and account (Bandwidth); so one at line rate leaves others their share: TestI14BandwidthIsShared.
//   - A response's header is bounded in bytes, lines (informational responses included) and time; the body is streamed:
//     TestI14AResponsesHeaderIsBounded.
//
// # Isolation
//
//   - A request to a port has no Authorization header; because those are for Atoll.
//   - Redirects and cookies stay below the port's path, headers for the whole host are dropped; because sandboxes share it:
//     TestASandboxSpeaksForItselfAlone, TestRedirectsLeadBelowThePort. A redirect to another host passes, one whose host clients do not
//     agree on is dropped.
//   - A connection to a port serves one request after the other of one caller, of one kind, while what that caller may do stays the same
//     (Handler.Caller); because each is authorized. One that waits for 2 s is closed, as is one that another conversation's share needs. It
//     ends with its sandbox: TestI13AReusedTunnelEndsWithItsSandbox, TestATunnelServesOneCaller, TestIdleTunnelsGiveWay.
//   - A caller whose rights are asked for elsewhere has no name, and shares no connection, nor one that was opened for a request that was
//     cancelled: TestATunnelOfACancelledRequestServesNoOtherCaller.
//   - The audit has a line for each connection, with all bytes that it carried.
//   - Requests from pages of other origins are refused (permit).
//   - At a path, a sandbox's page has an opaque origin (Content-Security-Policy: sandbox); because exec shares the host. It runs scripts,
//     but reads no responses, keeps no session, opens no WebSockets.
//   - At PORT-ID.DOMAIN a page has a normal origin, without API keys also below localhost; because browsers resolve that to their machine.
//   - The kernel's keepalive finds dead hosts; because slow readers send no pongs. Unsolicited pongs satisfy middleboxes and clients.
package reach
