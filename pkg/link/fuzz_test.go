// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"maps"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"navix.sh/atoll/pkg/link"
)

// The trace in a dispatch comes from another process: an invalid one is none, and a valid one is passed on.
func FuzzTrace(f *testing.F) {
	f.Add("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate", "a=b,c=d")
	f.Add("traceparent", "00-00000000000000000000000000000000-0000000000000000-00", "baggage", "a=b;c=d,%zz")
	f.Add("traceparent", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", "", "")
	f.Add("TraceParent", "", "tracestate", "=,=,\x00")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		ctx := link.WithTraceContext(t.Context(), map[string]string{k1: v1, k2: v2})
		span := trace.SpanContextFromContext(ctx)
		again := link.WithTraceContext(t.Context(), link.TraceContext(ctx))
		if got := trace.SpanContextFromContext(again); !got.Equal(span) {
			t.Fatalf("%+v comes back as %+v", span, got)
		}
		if got, want := baggage.FromContext(again).Len(), baggage.FromContext(ctx).Len(); got != want {
			t.Fatalf("%d items of baggage come back as %d", want, got)
		}
		if !span.IsValid() && maps.Equal(link.TraceContext(ctx), map[string]string{k1: v1}) && k1 == "traceparent" {
			t.Fatalf("%q is passed on as a trace", v1)
		}
	})
}
