// SPDX-License-Identifier: Apache-2.0

// Package podtunnel gets into the sandboxes of this cluster: logs, exec, and connections to their ports.
//
// In go a sandbox's id and what is wanted of it, from the hub's dispatches and from the local API, which both have made sure
// who asks; out comes a tunnel (pkg/reach). It keeps count of what is open, and is where package idle learns of activity.
//
//	service.go   which tunnels are open, how many may be, and when they end
//	session.go   one tunnel, and what holds for every message of it
//	activity.go  when sandboxes were last talked with
//	upstream.go  the API server: exec and logs
//	logfile.go   the log file of a runtime, by exec
//	port.go      the API server: ports
//
// # By way of the API server
//
// All three go through the API server to the kubelet, ports too: a Pod is named there and not an address, which may be
// another Pod's by the time it is dialled; it works from wherever this process runs; and no NetworkPolicy has to let the
// worker through. What it costs is one more hop, see e2e/bench. Exec is passed on message by message as the API server says
// it (v5.channel.k8s.io), so that nothing has to be taken apart on the way. Every conversation has a connection of its own to
// the API server, over HTTP/1.1, so that one that is not read holds up its own connection and no other (I10).
//
// # Until when (I13)
//
// A tunnel is noted before its sandbox is looked up, and package sandboxes says when a sandbox cannot be reached any more: before
// its release is written, when its Pod is seen in another phase, deleted, or no longer this process' to serve. From that
// moment no message passes, in either direction; what was under way in the API server ends with its connection. Whoever
// loses the lease finds out at the next message, or within a second. So a release is answered after the last message, and
// what is opened while it is being written is shut by what comes of it.
//
// What was sent to the API server cannot be called back: a request that it holds on to for longer than a Pod takes to be
// reset could still be carried out in the Pod's next container. Where that can be said of an
// exec, the Pod is not reset but replaced: see sandboxes.BeginExec.
//
// # Activity
//
// Messages with content are activity, in either direction, and so is opening a tunnel; one that is open and silent is none.
// What begins after a pause is written down at once, by a touch; what follows package idle asks for.
package podtunnel
