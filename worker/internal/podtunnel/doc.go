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
// # What is reached (I14)
//
// The sandbox's container, or one that the pool or its Env lists, and the ports of a Pod that has a network of its own (package
// allowed). Anything else is FORBIDDEN, is sent to no API server, and is no activity; held by TestI14CallersReachWhatIsTheSandboxs.
//
// # When a tunnel ends (I13)
//
//   - A tunnel is noted before its sandbox is looked up. Package sandboxes reports when a sandbox can no longer be reached:
//     before its release is written, or when its Pod is in another phase, deleted, or no longer served by this process. From then
//     on no message passes, in either direction. Requests under way end with their connection.
//   - A process that loses the lease ends its tunnels at the next message, or within a second; held by
//     TestAWorkerThatLostItsLeaseLetsGo.
//   - So a release returns after the last message. A tunnel that is opened while the release is being written is closed by its
//     result; held by TestATunnelEndsBeforeItsReleaseIsAnswered.
//   - A request that was sent to the API server cannot be recalled: one that it holds for longer than the reset of a Pod takes
//     could still be carried out in the Pod's next container. Where that is possible for an exec, the Pod is replaced, not reset:
//     see sandboxes.BeginExec; held by TestI13APodWithAnUnansweredExecIsReplaced.
//
// # Activity
//
// Messages with content are activity, in either direction, and so is opening a tunnel. An open and silent tunnel is none. The
// first activity after a pause is written at once, by a touch. Package idle reads the rest; held by
// TestI11TalkIsWrittenDownInTime.
package podtunnel
