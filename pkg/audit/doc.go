// SPDX-License-Identifier: Apache-2.0

// Package audit records what was done through a hub: one JSON line for each change, refusal, conversation and attached cluster.
//
// In: calls (interceptors), conversations, and clusters that attach. Out: lines to files, stdout or a collector; Read and Filter for
// atollctl audit. docs/operations.md has the schema.
//
//	event.go     the schema, and how texts are made safe
//	table.go     which calls have a line, by the table of permissions (package access)
//	object.go    the object of a call
//	calls.go     interceptors of gRPC and REST
//	log.go       the Log: Record never waits; Before and After wait if the audit is strict
//	outlet.go    the queue of one sink
//	refusals.go  refusals that are only counted
//	sinks.go     stdout and files
//	otlp.go      a collector
//	read.go      reading and filtering lines
//
// # Rules
//
//   - A line has names, hashes and numbers. It has no token, body, command, error message or claim key; because all of these may contain
//     secrets: TestTheWalkFindsNoSecret (e2e/audit).
//   - Every text is clipped and has no control or format characters, so that no text can imitate a line: TestNoTextImitatesALine.
//   - The caller is the identity that was proven; the address is that of the connection. X-Forwarded-For is not trusted; because no proxy
//     is configured.
//   - The default is a file in the data directory: there is always an audit, it is separate from logs, and its size is bounded.
//   - TouchSandbox is activity, not policy, and has no line. Reads, watches and logs of Atoll's own state have none either. BackupHub has
//     one, because it hands out everything. A conversation (exec, logs, a port) has a line at its begin and at its end.
//
// # Claims never wait
//
//   - Record encodes and queues an event; it does not wait. If the queue is full, the line is dropped and counted
//     (atoll_hub_audit_dropped_total), and the next line that is written is a gap with the number of dropped lines:
//     TestAStuckSinkHoldsUpNoCall.
//   - One caller may use a quarter of a queue, so that a flood of one caller does not drop the lines of others (I14).
//   - A queue holds 4096 lines of at most 6 KiB (I10).
//   - An address, caller or cluster has lines for a few refusals a minute, and at most 64 of them do. Further refusals are counted in
//     summaries: TestI14AFloodOfRefusalsIsFolded.
//
// # Strict
//
// A call acts only after its intent is in every sink; otherwise it fails with UNAVAILABLE. After it has acted, its outcome is written
// before the response is sent. If that write fails, the response does not change; because the call has acted: an intent without an outcome
// shows this. A sink that does not respond delays a strict call by 3 s.
package audit
