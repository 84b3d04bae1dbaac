// SPDX-License-Identifier: Apache-2.0

// Package audit writes down what was done through a hub: one JSON line for each change, refusal, conversation and cluster.
//
// In: calls (interceptors), conversations, and clusters that attach. Out: lines to files, stdout or a collector; Read and Filter for
// atollctl audit. docs/operations.md has the schema.
//
//	event.go     the schema, and what makes a text safe
//	table.go     which calls have a line, by the table of permissions (package access)
//	object.go    what a call is about
//	calls.go     interceptors of gRPC and REST
//	log.go       the Log: Record never waits, Before and After do with strict
//	outlet.go    the queue of one sink
//	refusals.go  refusals that are only counted
//	sinks.go     stdout and files
//	otlp.go      a collector
//	read.go      lines read back, and filtered
//
// # Rules
//
//   - A line has names, hashes and numbers. It has no token, body, command, message of an error, or claim key; because all of these have
//     secrets: TestTheWalkFindsNoSecret (e2e/audit).
//   - Every text is clipped, and has no control or format characters, so that none imitates a line: TestNoTextImitatesALine.
//   - The caller is what it proved, the address that of the connection. X-Forwarded-For is not believed; because no proxy is configured.
//   - The default is a file of the data directory: an auditor finds something, it mixes with no log, and its size is bounded.
//   - TouchSandbox is activity, not policy, and has no line. Nor have reads, watches and logs of Atoll's own state; BackupHub has, because
//     it hands out everything. A conversation (exec, logs, a port) has a line when it begins and when it ends.
//
// # Never in a claim's way
//
//   - Record encodes and queues; it does not wait. A full queue drops the line, counts it (atoll_hub_audit_dropped_total), and the next
//     line that is written is a gap with the number: TestAStuckSinkHoldsUpNoCall.
//   - One caller has a quarter of a queue, so that a flood of one does not drop the lines of others (I14).
//   - A queue has 4096 lines of at most 6 KiB (I10).
//   - Refusals are a few lines a minute for each address, caller or cluster, and for 64 of those; the rest is counted in summaries:
//     TestI14AFloodOfRefusalsIsFolded.
//
// # Strict
//
// Before a call acts its intent is in every sink; else it gets UNAVAILABLE and has not acted. After it has acted its outcome is written
// before the response. If that fails the response stays as it is; because the call has acted: an intent without an outcome tells so.
// A sink that does not respond costs a strict call 3 s.
package audit
