// SPDX-License-Identifier: Apache-2.0

// Package reach serves the REST paths logs, exec and ports at the hub and the worker, and files and processes at the hub. It defines the
// Tunnel that carries a conversation over every hop.
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
// A refusal is a problem document, sent before any upgrade. A log that breaks off ends with the trailer Atoll-Error. An exec that breaks
// off reports it on the error channel, never as an exit code.
//
// # Files and processes
//
//   - The daemon has no token until the first call, which sets the hub's (package sandboxd); so a sandbox needs no setup for it.
//   - Each call is a conversation with a port, and is recorded as files or processes. It needs the permission for exec.
//   - A conversation with the daemon's port at the path ports needs the same permission, and is recorded as processes; because a caller of
//     that port can run commands and read files: TestTheDaemonsPortIsProcesses, TestThePermissionOfPortsDoesNotReachTheDaemon
//     (hub/internal/api).
//   - Files are streamed. Lists and the output of commands are bounded, because a caller can make this process hold them.
//
// # What a sandbox can cost (I10, I14)
//
//   - A hop copies one message at a time and has no queue. Data that a slow reader does not take waits in the conversation's windows, of
//     fixed size, and at its source.
//   - At each hop a conversation holds one message in each direction, a WebSocket's buffers, and its tunnel's window. It counts against its
//     sandbox, its cluster and, at a hub, its API key (Shares).
//   - A team (at a hub the caller's, at a worker the sandbox's) has a share, and at most as many conversations as remain free for others:
//     TestI14SharesOfConversations.
//   - The data of conversations is rate-limited by sandbox and account (Bandwidth); so a conversation at line rate leaves others their
//     share: TestI14BandwidthIsShared.
//   - A response's header is bounded in bytes, lines (informational responses included) and time; the body is streamed:
//     TestI14AResponsesHeaderIsBounded.
//
// # Isolation
//
//   - A request to a port is sent without its Authorization header; because that contains credentials for Atoll.
//   - Redirects and cookies stay below the port's path, and headers for the whole host are dropped; because sandboxes share the host:
//     TestASandboxSpeaksForItselfAlone, TestRedirectsLeadBelowThePort. A redirect to another host passes. A redirect to a host that clients
//     parse differently is dropped.
//   - A connection to a port serves successive requests of one caller and one kind, as long as the caller's permissions do not change
//     (Handler.Caller); because each request is authorized. It is closed after 2 s without a request, or earlier if another conversation
//     needs its share. It ends with its sandbox: TestI13AReusedTunnelEndsWithItsSandbox, TestATunnelServesOneCaller,
//     TestIdleTunnelsGiveWay.
//   - A caller whose permissions are checked elsewhere has no name. It shares no connection, not even one that was opened for a cancelled
//     request: TestATunnelOfACancelledRequestServesNoOtherCaller.
//   - The audit has a line for each connection, with all bytes that it carried.
//   - Requests from pages of other origins are refused (permit).
//   - At a path, a sandbox's page has an opaque origin (Content-Security-Policy: sandbox); because exec shares the host. The page can run
//     scripts, but cannot read responses, keep a session or open WebSockets.
//   - At PORT-ID.DOMAIN a page has a normal origin. Without API keys this also works below localhost; because browsers resolve that to
//     their own machine.
//   - The kernel's keepalive detects dead hosts; because slow readers send no pongs. Unsolicited pongs keep middleboxes and clients from
//     closing the connection.
package reach
