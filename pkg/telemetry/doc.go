// SPDX-License-Identifier: Apache-2.0

// Package telemetry is the only user of OpenTelemetry: it creates a process's tracer provider, and a call's spans from the public API to
// the write on a Pod, and sends the lines of an audit to a collector (Logs).
//
// In: an OTLP endpoint (flag or OpenTelemetry's environment) and contexts. Out: spans:
//
//	hub     <service>/<method>  the public call; Unary, for gRPC and REST
//	          route             the picked member, and why
//	          ledger write      one durable write about a key
//	          dispatch          until its response; travels in the dispatch's trace field
//	worker      <call>          the same call at the worker: Continue
//	              queue         until there is a Pod
//	              pod write     the one that hands it out, or ends it
//	              start         until the sandbox runs, an image swap included
//
// Rules:
//
//   - Without an endpoint there are no spans: Start is one lookup and allocates nothing: TestFlags, TestOffIsFree,
//     TestASpanIsNotAskedForBelowOneThatIsNotSampled. A span uses its parent's provider, so packages need no option:
//     TestAdoptOutlivesTheCaller.
//   - A span contains names of objects, outcomes and reasons. It contains no claim key (only its hash), user, token, error message or part
//     of a body: TestEndKeepsTheReasonAndNotTheMessage, TestSpansTellNothingOfTheCaller of hub/internal/api,
//     TestACallIsOneTraceAcrossProcesses of e2e/federation.
//   - A caller's traceparent is continued, but not its baggage: TestUnaryContinuesTheCallersTrace.
//   - otelgrpc is not used; because REST calls have no gRPC connection, and spans of streams would last for days:
//     depguard in .golangci.yml.
package telemetry
