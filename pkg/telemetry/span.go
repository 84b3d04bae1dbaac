// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"navix.sh/atoll/pkg/problem"
)

const scope = "navix.sh/atoll"

// Attributes of spans.
const (
	Env       = attribute.Key("atoll.env") // namespace/name
	Cluster   = attribute.Key("atoll.cluster")
	Pool      = attribute.Key("atoll.pool")
	Pod       = attribute.Key("atoll.pod")
	Sandbox   = attribute.Key("atoll.sandbox")
	KeyHash   = attribute.Key("atoll.claim_key_hash")
	Attempt   = attribute.Key("atoll.attempt")
	State     = attribute.Key("atoll.state")   // of a claim's record
	Outcome   = attribute.Key("atoll.outcome") // of an attempt
	Reason    = attribute.Key("atoll.reason")  // of an error, or of a decision
	Candidate = attribute.Key("atoll.candidates")
	Tier      = attribute.Key("atoll.tier")
	Call      = attribute.Key("atoll.call")
)

// Start begins a span below the one in ctx. Without one, or if that is not sampled, it does nothing, at no cost. Attributes
// belong behind IsRecording: making them is not free.
func Start(ctx context.Context, name string) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsSampled() {
		return ctx, parent // which records nothing, so that ending it is nothing
	}
	return parent.TracerProvider().Tracer(scope).Start(ctx, name)
}

// End ends a span that Start began. Of an error it keeps the reason: messages may quote claim keys.
func End(span trace.Span, err error) {
	if !span.IsRecording() {
		return
	}
	if err != nil {
		reason := string(problem.FromError(err).Reason)
		span.SetAttributes(Reason.String(reason))
		span.SetStatus(codes.Error, reason)
	}
	span.End()
}

// Adopt lets what goes on under ctx, which outlives its caller's, belong to the caller's trace.
func Adopt(ctx, caller context.Context) context.Context {
	if span := trace.SpanFromContext(caller); span.SpanContext().IsValid() {
		return trace.ContextWithSpan(ctx, span)
	}
	return ctx
}

// Joined notes that a call waits for what another call has begun, whose trace it does not share.
func Joined(ctx, other context.Context) {
	own, theirs := trace.SpanFromContext(ctx), trace.SpanContextFromContext(other)
	if own.IsRecording() && theirs.IsValid() && theirs.TraceID() != own.SpanContext().TraceID() {
		own.AddLink(trace.Link{SpanContext: theirs})
	}
}

// Continue begins the span of a call that came over the link with the trace of its caller, already extracted into ctx. A
// nil provider begins none.
func Continue(ctx context.Context, provider trace.TracerProvider, name string) (context.Context, trace.Span) {
	if provider == nil {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return provider.Tracer(scope).Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
}
