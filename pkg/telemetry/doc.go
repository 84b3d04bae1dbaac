// SPDX-License-Identifier: Apache-2.0

// Package telemetry is the one home of OpenTelemetry: it makes the tracer provider of a process, and the spans of a call on
// its way from the public API to the write on a Pod and back.
//
// In go an OTLP endpoint (flag or OpenTelemetry's own environment) and contexts; out come spans. Where spans are:
//
//	hub     <service>/<method>  the public call; Unary, one for gRPC and REST
//	          route             which member was picked, out of how many, and why
//	          ledger write      one durable write about a claim key
//	          dispatch          a call over the link until its answer; travels in the dispatch's trace field
//	worker      <call>          the same call at the worker: Continue
//	              queue         until there is a Pod
//	              pod write     the one write that hands it out, or ends it
//	              start         until the sandbox runs, with a swap of the image if it needs one
//
// # Free when it is off
//
// Without an endpoint there is no provider, and no span in any context: Start is then one look into the context and
// allocates nothing. There is no global tracer either: a span finds its provider in the span above it, so that a package
// which is on the way of a call needs no option for tracing.
//
// # What is in a span
//
// Names of Envs, pools, Pods, clusters and sandboxes, outcomes and reasons; never a claim key (its hash stands for it), a
// user, a token, a message of an error or anything of a request's body. A public caller's traceparent is continued, its
// baggage is not.
//
// # Where it departs from what is usual
//
// otelgrpc is not used: REST calls go into the services with no gRPC connection in between, and spans of the link's
// streams would last for days.
package telemetry
