// SPDX-License-Identifier: Apache-2.0

// Package podtunnel opens tunnels into this cluster's sandboxes: logs, exec, and connections to ports.
//
// In: a sandbox's id and what to open, from authenticated callers of hub or local API. Out: a tunnel (pkg/reach), and activity for package
// idle. It keeps I13: no message for a sandbox reaches the next sandbox of its Pod.
//
//	service.go   open tunnels and their bound
//	session.go   one tunnel
//	activity.go  last traffic
//	upstream.go  exec and logs
//	logfile.go   runtimes' logs, by exec
//	port.go      ports
//	secrets.go   values of Secrets for a sandbox's daemon
//	unread.go    bounds the unread data of a port
//	frames.go    a small message to a port, in one write
//	caller.go    the caller, in the user agent
//
// # Rules
//
//   - Tunnels go through the API server; because its requests name a Pod, not an address that another Pod may get, and need no
//     NetworkPolicy.
//   - Requests to the API server name the caller in their user agent; because its audit knows only the worker:
//     TestAnExecsAuditEventNamesTheCaller (e2e/audit).
//   - Exec messages pass unparsed (v5.channel.k8s.io).
//   - Each conversation has its own HTTP/1.1 connection; because an unread one must block no other (I10):
//     TestASlowReaderHoldsUpItselfAlone.
//   - Values of Secrets go from here to the sandbox's daemon, in one request to its port. Neither the hub's tunnel nor any error contains
//     them: TestSecretsOfAClaim (e2e/e2b).
//   - Data that a caller does not read stays at its source, except for one message of an exec or log, and 128 KiB of a port; because the
//     library for SPDY has no flow control and would queue 1.6 MiB (I14): TestI14WhatIsNotReadIsNotTaken.
//   - I14: an account opens four conversations at a time; because each costs the API server a handshake. Further ones wait, within the 10 s
//     that an opening may take: TestI14AKeyRunsFewAtATime.
//   - I14: only targets that package allowed allows can be reached. Other requests are FORBIDDEN, sent nowhere, and count as no activity:
//     TestI14CallersReachWhatIsTheSandboxs.
//
// # When a tunnel ends (I13)
//
//   - A tunnel is registered before its sandbox is looked up. No message passes after package sandboxes reports the sandbox out of reach:
//     before its release is written, or when its Pod leaves the phase, is deleted, or is no longer served here.
//   - So a release returns after the last message, and closes a tunnel opened meanwhile: TestATunnelEndsBeforeItsReleaseIsAnswered.
//   - Without the lease, tunnels end at the next message, or within a second: TestAWorkerThatLostItsLeaseLetsGo.
//   - A Pod with an unanswered exec is replaced (sandboxes.BeginExec): TestI13APodWithAnUnansweredExecIsReplaced,
//     TestI13APodWhoseExecLostItsConnectionIsReplaced.
//   - Messages that the hub sends before a caller has its sandbox are no activity: TestPreparingIsNoActivity.
//   - Opening a tunnel is activity, and so is each message with content. The first one after a pause is written immediately:
//     TestI11TalkIsWrittenDownInTime.
package podtunnel
