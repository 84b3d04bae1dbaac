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

// Start starts a child of the span in ctx. If there is none, or if it is not sampled, Start does nothing and costs nothing. Create
// attributes only if IsRecording is true, because they cost.
func Start(ctx context.Context, name string) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsSampled() {
		return ctx, parent // which records nothing, so ending it has no effect
	}
	return parent.TracerProvider().Tracer(scope).Start(ctx, name)
}

// End ends a span. It records only the reason of an error, because messages may contain claim keys.
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

// Adopt adds the caller's trace to ctx, which outlives the caller's context.
func Adopt(ctx, caller context.Context) context.Context {
	if span := trace.SpanFromContext(caller); span.SpanContext().IsValid() {
		return trace.ContextWithSpan(ctx, span)
	}
	return ctx
}

// Joined records that a call waits for the work of another call, which has its own trace.
func Joined(ctx, other context.Context) {
	own, theirs := trace.SpanFromContext(ctx), trace.SpanContextFromContext(other)
	if own.IsRecording() && theirs.IsValid() && theirs.TraceID() != own.SpanContext().TraceID() {
		own.AddLink(trace.Link{SpanContext: theirs})
	}
}

// Continue starts the span of a call that came over the link. ctx must contain the caller's trace. With a nil provider it starts none.
func Continue(ctx context.Context, provider trace.TracerProvider, name string) (context.Context, trace.Span) {
	if provider == nil {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return provider.Tracer(scope).Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
}
