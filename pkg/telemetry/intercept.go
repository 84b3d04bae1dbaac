// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// ours is the prefix of methods that get a span; health checks and reflection get none.
const ours = "/atoll.sandbox.v1."

// Unary starts a span for every call of the public API, as a child of the caller's span. With a nil provider it only propagates the
// caller's trace, if there is one.
func Unary(provider trace.TracerProvider) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		ctx = fromCaller(ctx)
		method, traced := strings.CutPrefix(info.FullMethod, ours)
		if provider == nil || !traced {
			return handler(ctx, req)
		}
		ctx, span := provider.Tracer(scope).Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer))
		defer func() {
			if span.IsRecording() {
				span.SetAttributes(attribute.String("rpc.method", info.FullMethod[1:]),
					attribute.String("rpc.response.status_code", status.Code(err).String()))
			}
			End(span, err)
		}()
		return handler(ctx, req)
	}
}

// fromCaller extracts the trace from a call's metadata, into which the gateway copies HTTP headers.
func fromCaller(ctx context.Context) context.Context {
	parent := metadata.ValueFromIncomingContext(ctx, "traceparent")
	if len(parent) == 0 {
		return ctx
	}
	carrier := propagation.MapCarrier{"traceparent": parent[0]}
	if state := metadata.ValueFromIncomingContext(ctx, "tracestate"); len(state) > 0 {
		carrier["tracestate"] = state[0]
	}
	return propagation.TraceContext{}.Extract(ctx, carrier)
}
