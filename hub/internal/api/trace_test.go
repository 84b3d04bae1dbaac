// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
)

// A REST call continues its caller's trace, and is measured, as a gRPC call is.
func TestARESTCallIsTracedAndMeasured(t *testing.T) {
	spans, registry := tracetest.NewInMemoryExporter(), prometheus.NewRegistry()
	base := serveAPI(t, newFleet(t, "default/demo"), Options{
		Traces: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), Metrics: registry,
	})
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	exchange(t, base, "POST", "/v1/sandboxes", `{"env":"demo","claimKey":"secret-key"}`, "Traceparent", "00-"+id+"-"+parent+"-01")

	got := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		got[s.Name] = s
		if s.SpanContext.TraceID().String() != id {
			t.Errorf("%s is of trace %s", s.Name, s.SpanContext.TraceID())
		}
	}
	call := got["Sandboxes/CreateSandbox"]
	if call.Parent.SpanID().String() != parent || call.Status.Code != codes.Error || call.Status.Description != "NO_CAPACITY" {
		t.Errorf("the call's span: %+v", call)
	}
	if got["route"].Parent.SpanID() != call.SpanContext.SpanID() || got["ledger write"].Parent.SpanID() != call.SpanContext.SpanID() {
		t.Errorf("spans below the call: %v", got)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetMetric()[0].GetHistogram().GetSampleCount() != 1 {
		t.Errorf("measured %v (%v)", families, err)
	}
}

// No span of a call has its caller's user or token, or a part of the body. Of the claim key it has the hash.
func TestSpansTellNothingOfTheCaller(t *testing.T) {
	token, auth := authOf(t, Key{Name: "ci", Team: "red", User: "canary-user", AllNamespaces: true, Scopes: []Scope{ScopeClaim}})
	spans := tracetest.NewInMemoryExporter()
	base := serveAPI(t, newFleet(t, "default/demo"), Options{
		Auth: auth, Traces: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
	})
	exchange(t, base, "POST", "/v1/sandboxes", `{"env":"demo","claimKey":"canary-key","metadata":{"note":"canary-body"}}`,
		"Authorization", "Bearer "+token)

	text, err := json.Marshal(spans.GetSpans())
	must.Succeed(t, err)
	for _, want := range []string{"Sandboxes/CreateSandbox", "ledger write", ledger.KeyHash("red", "default", "canary-key")} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no span has %s: %s", want, text)
		}
	}
	for _, private := range []string{"canary", token} {
		if strings.Contains(string(text), private) {
			t.Errorf("a span has %s: %s", private, text)
		}
	}
}
