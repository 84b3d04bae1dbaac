// SPDX-License-Identifier: Apache-2.0

// Package telemetry is the only user of OpenTelemetry: it creates a process's tracer provider, and the spans of a call from the
// public API to the write on a Pod and back.
//
// In go an OTLP endpoint (flag or OpenTelemetry's own environment) and contexts; out come spans:
//
//	hub     <service>/<method>  the public call; Unary, one for gRPC and REST
//	          route             the picked member, the number of candidates, and why
//	          ledger write      one durable write about a claim key
//	          dispatch          a call over the link until its response; travels in the dispatch's trace field
//	worker      <call>          the same call at the worker: Continue
//	              queue         until there is a Pod
//	              pod write     the one write that hands it out, or ends it
//	              start         until the sandbox runs, with a swap of the image if it needs one
//
// # No cost when disabled
//
// Without an endpoint there is no provider, and no span in any context: Start is one lookup in the context and allocates
// nothing. There is no global tracer: a span gets its provider from its parent, so packages on the path of a call need no
// tracing option.
//
// # Content of a span
//
// A span has names of Envs, pools, Pods, clusters and sandboxes, outcomes and reasons. It never has a claim key (its hash
// stands for it), a user, a token, an error's message or any of a request's body. A public caller's traceparent is continued,
// its baggage is not.
//
// # Why not otelgrpc
//
// REST calls reach the services without a gRPC connection, and spans of the link's streams would last for days.
package telemetry
