// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/telemetry"
)

// The trace of a dispatched call continues through the worker, as far as the write on the Pod and the container's start, also for
// a claim with a key, which outlives its caller.
func TestADispatchIsTracedToThePod(t *testing.T) {
	w := newWorld(t)
	spans, registry := tracetest.NewInMemoryExporter(), prometheus.NewRegistry()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	w.makeEnv("py", 1)
	w.leadWith(clusterID, func(o *Options) { o.Traces, o.Metrics = provider, registry })
	s := w.hub.session()
	w.hub.shows("py", 1)

	ctx, root := provider.Tracer("test").Start(t.Context(), "hub")
	claim := w.claimCall("py", w.hash(1))
	claim.Claim.Request.Wait = sandboxv1.CreateSandboxRequest_READY
	s.dispatch(&federationv1.Dispatch{Id: 1, Incarnation: 1, Trace: link.TraceContext(ctx), Call: claim})
	id := s.answer(1).GetSandbox().GetId()
	s.dispatch(&federationv1.Dispatch{Id: 2, Incarnation: 1, Trace: link.TraceContext(ctx), Call: &federationv1.Dispatch_Release{
		Release: &sandboxv1.ReleaseSandboxRequest{Id: id}}})
	s.answer(2)

	var tree []string
	names := map[string]string{root.SpanContext().SpanID().String(): "hub"}
	w.Eventually("the spans", func() error {
		tree = nil
		for _, span := range spans.GetSpans() {
			names[span.SpanContext.SpanID().String()] = span.Name
		}
		for _, span := range spans.GetSpans() {
			tree = append(tree, names[span.Parent.SpanID().String()]+" > "+span.Name)
			if span.SpanContext.TraceID() != root.SpanContext().TraceID() {
				return fmt.Errorf("%s is of another trace", span.Name)
			}
			attrs := attribute.NewSet(span.Attributes...)
			if value, ok := attrs.Value(telemetry.Sandbox); ok && value.AsString() != id {
				return fmt.Errorf("%s is of sandbox %s", span.Name, value.AsString())
			}
		}
		want := "[claim > queue claim > pod write claim > start hub > claim release > pod write hub > release]"
		got := fmt.Sprint(tree)
		return wait.If(got == want, fmt.Sprintf("%s, want %s", got, want))
	})
	if n, err := testutil.GatherAndCount(registry, "atoll_worker_hub_dispatches_total"); n != 2 || err != nil {
		t.Errorf("%d series of dispatches, want 2 (%v)", n, err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
