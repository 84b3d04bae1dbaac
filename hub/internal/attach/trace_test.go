// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/telemetry"
)

// The worker gets the trace of the caller, below the span of the dispatch; without one the frame carries nothing.
func TestADispatchCarriesItsTrace(t *testing.T) {
	h := newHub(t, handler{})
	registry := prometheus.NewRegistry()
	h.must(h.server.Register(registry))
	w := h.attach("a", "py")
	spans := tracetest.NewInMemoryExporter()
	ctx, root := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("test").Start(t.Context(), "root")

	answered := h.dispatch(ctx, "a", claimOf("0123"))
	d := w.dispatched()
	carried := trace.SpanContextFromContext(link.WithTraceContext(t.Context(), d.GetTrace()))
	w.answer(&federationv1.Answer{Id: d.GetId(), Disposition: federationv1.Disposition_REFUSED})
	h.must(h.await(answered).err)
	got := spans.GetSpans()
	if len(got) != 1 || carried.SpanID() != got[0].SpanContext.SpanID() || got[0].Parent.SpanID() != root.SpanContext().SpanID() {
		t.Fatalf("the worker is below %s; recorded: %+v", carried.SpanID(), got)
	}
	attrs := attribute.NewSet(got[0].Attributes...)
	for key, want := range map[attribute.Key]string{
		telemetry.Cluster: "a", telemetry.Pool: "main", telemetry.KeyHash: "0123", telemetry.Outcome: "refused", telemetry.Call: "claim",
	} {
		if value, _ := attrs.Value(key); value.AsString() != want {
			t.Errorf("%s is %q, want %q", key, value.AsString(), want)
		}
	}
	if _, err := h.server.Dispatch(ctx, "nowhere", claimOf("")); err == nil || len(spans.GetSpans()) != 2 {
		t.Errorf("to a cluster without a stream: %v, %d spans", err, len(spans.GetSpans()))
	}

	answered = h.dispatch(t.Context(), "a", claimOf(""))
	if d = w.dispatched(); len(d.GetTrace()) != 0 {
		t.Errorf("a call without a trace carries %v", d.GetTrace())
	}
	w.answer(&federationv1.Answer{Id: d.GetId(), Disposition: 77})
	h.await(answered)
	counts := map[string]uint64{}
	families, err := registry.Gather()
	h.must(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "atoll_hub_dispatch_seconds" {
				counts[m.GetLabel()[1].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	if got := fmt.Sprint(counts); got != "map[not_sent:1 refused:1 unknown:1]" {
		t.Error(got)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
