// SPDX-License-Identifier: Apache-2.0

// Package podtunnel opens tunnels into the sandboxes of this cluster: logs, exec, and connections to their ports.
//
// In: a sandbox's id and what to open, from the hub's dispatches and from the local API, which have both authenticated the
// caller. Out: a tunnel (pkg/reach), and the activity of sandboxes for package idle. It counts the open tunnels. It keeps I13: no
// message reaches a sandbox's successor.
//
//	service.go   which tunnels are open, how many may be, and when they end
//	session.go   one tunnel, and the checks of each message
//	activity.go  when sandboxes last had traffic
//	upstream.go  the API server: exec and logs
//	logfile.go   the log file of a runtime, by exec
//	port.go      the API server: ports
//
// # Through the API server
//
//   - Logs, exec and ports all go through the API server to the kubelet, because it names a Pod and not an address, which another
//     Pod may have by the time it is dialled. It works wherever this process runs, and no NetworkPolicy has to let the worker
//     through. The cost is one more hop, see e2e/bench.
//   - Exec passes message by message as the API server sends it (v5.channel.k8s.io), so that nothing has to be parsed on the way.
//   - Each conversation has its own connection to the API server, over HTTP/1.1, so that one that is not read blocks no other
//     (I10); held by TestASlowReaderHoldsUpItselfAlone.
//
// # When a tunnel ends (I13)
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
// Messages with content are activity, in either direction, and so is opening a tunnel. An open and silent tunnel is none. The
// first activity after a pause is written at once, by a touch. Package idle reads the rest; held by
// TestI11TalkIsWrittenDownInTime.
package podtunnel
