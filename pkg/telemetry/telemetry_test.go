// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/pkg/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func recorder() (*tracetest.InMemoryExporter, *sdktrace.TracerProvider) {
	spans := tracetest.NewInMemoryExporter()
	return spans, sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
}

// Without tracing a span costs nothing; because every claim runs this code.
func TestOffIsFree(t *testing.T) {
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		inner, span := Start(ctx, "route")
		if span.IsRecording() || inner != ctx {
			t.Fatal("a span without a trace")
		}
		End(span, nil)
		_, span = Continue(ctx, nil, "claim")
		End(span, nil)
		_ = Adopt(ctx, inner)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestASpanIsNotAskedForBelowOneThatIsNotSampled(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.NeverSample()))
	ctx, root := provider.Tracer(scope).Start(t.Context(), "root")
	inner, span := Start(ctx, "route")
	End(span, nil)
	root.End()
	if inner != ctx || len(spans.GetSpans()) != 0 {
		t.Errorf("recorded %d spans", len(spans.GetSpans()))
	}
}

// Work that outlives its caller still belongs to the caller's trace, after the caller's own span has ended.
func TestAdoptOutlivesTheCaller(t *testing.T) {
	spans, provider := recorder()
	caller, root := provider.Tracer(scope).Start(t.Context(), "root")
	ctx := Adopt(context.Background(), caller)
	root.End()
	_, span := Start(ctx, "later")
	End(span, nil)
	got := spans.GetSpans()
	if len(got) != 2 || got[1].Parent.SpanID() != got[0].SpanContext.SpanID() {
		t.Errorf("spans: %+v", got)
	}
}

func TestJoinedLinksToTheOtherTrace(t *testing.T) {
	spans, provider := recorder()
	first, one := provider.Tracer(scope).Start(t.Context(), "first")
	second, two := provider.Tracer(scope).Start(t.Context(), "second")
	Joined(second, first)
	Joined(second, second)
	Joined(t.Context(), first)
	two.End()
	one.End()
	if links := spans.GetSpans()[0].Links; len(links) != 1 || links[0].SpanContext.TraceID() != one.SpanContext().TraceID() {
		t.Errorf("links: %+v", links)
	}
}

func TestEndKeepsTheReasonAndNotTheMessage(t *testing.T) {
	spans, provider := recorder()
	_, span := provider.Tracer(scope).Start(t.Context(), "x")
	End(span, problem.New(problem.ClaimKeyConflict, "claim key %q was used before", "secret-key"))
	got := spans.GetSpans()[0]
	if got.Status.Code != codes.Error || got.Status.Description != string(problem.ClaimKeyConflict) || len(got.Events) != 0 {
		t.Errorf("span: %+v", got)
	}
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func call(t *testing.T, provider trace.TracerProvider, method string, md metadata.MD) (seen trace.SpanContext) {
	t.Helper()
	ctx := metadata.NewIncomingContext(t.Context(), md)
	_, err := Unary(provider)(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
		seen = trace.SpanContextFromContext(ctx)
		if got := baggage.FromContext(ctx); got.Len() > 0 {
			t.Errorf("the call has the caller's baggage %v", got)
		}
		return nil, errors.New("broken")
	})
	if err == nil {
		t.Fatal("the error is gone")
	}
	return seen
}

func TestUnaryContinuesTheCallersTrace(t *testing.T) {
	const create = "/atoll.sandbox.v1.Sandboxes/CreateSandbox"
	spans, provider := recorder()
	md := metadata.Pairs("traceparent", parent, "tracestate", "a=b", "baggage", "user=alice")
	if got := call(t, provider, create, md); got.TraceID().String() != parent[3:35] || got.TraceState().String() != "a=b" {
		t.Errorf("the call is of trace %s", got.TraceID())
	}
	if got := spans.GetSpans(); len(got) != 1 || got[0].Name != "Sandboxes/CreateSandbox" || got[0].Parent.SpanID().String() != parent[36:52] {
		t.Errorf("spans: %+v", got)
	}
	for _, broken := range []string{"", "00-0-0-00", strings.Repeat("x", 1<<16)} {
		if got := call(t, provider, create, metadata.Pairs("traceparent", broken)); !got.IsValid() || got.IsRemote() {
			t.Errorf("traceparent %.20q: %+v", broken, got)
		}
	}
	spans.Reset()
	call(t, provider, "/grpc.health.v1.Health/Check", nil)
	if got := call(t, nil, create, md); got.TraceID().String() != parent[3:35] {
		t.Error("a hub that does not trace does not pass on the caller's trace")
	}
	if n := len(spans.GetSpans()); n != 0 {
		t.Errorf("%d spans of calls that get none", n)
	}
}

func TestFlags(t *testing.T) {
	for endpoint, ok := range map[string]bool{
		"": true, "http://collector:4317": true, "https://collector.example.org": true, "collector:4317": false, "http://": false,
		"ftp://x": false, "http://user:password@collector": false, "http://c/v1/traces": false, "http://c?x=1": false, "::": false,
	} {
		err := (&Flags{Endpoint: endpoint}).Validate()
		if (err == nil) != ok || err != nil && strings.Contains(err.Error(), "password") {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	env := func(values map[string]string) func(string) string {
		return func(name string) string { return values[name] }
	}
	for _, c := range []struct {
		flag string
		env  map[string]string
		want bool
	}{
		{"", nil, false},
		{"http://c", nil, true},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, true},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, true},
		{"http://c", map[string]string{"OTEL_SDK_DISABLED": "TRUE"}, false},
		{"http://c", map[string]string{"OTEL_TRACES_EXPORTER": "none"}, false},
	} {
		if got := (&Flags{Endpoint: c.flag}).enabled(env(c.env)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	if _, err := (&Flags{Endpoint: "http://c"}).Open(t.Context(), Service{}, logr.Discard()); err == nil {
		t.Error("a protocol that is not built in was taken")
	}
}

// collector receives a process's exports.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	got chan *collectorv1.ExportTraceServiceRequest
}

func (c collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.got <- r
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func TestSpansReachACollector(t *testing.T) {
	c := collector{got: make(chan *collectorv1.ExportTraceServiceRequest, 1)}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	address := testserver.ServeGRPC(t, server)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	flags := &Flags{Endpoint: "http://" + address}
	tracing, err := flags.Open(t.Context(), Service{Name: "atoll-worker", Version: "v0", ClusterID: "east"}, logr.Discard())
	must.Succeed(t, err)
	_, span := Continue(t.Context(), tracing.Provider, "claim")
	End(span, nil)
	must.Succeed(t, tracing.Close())
	select {
	case r := <-c.got:
		attrs := map[string]string{}
		for _, a := range r.GetResourceSpans()[0].GetResource().GetAttributes() {
			attrs[a.GetKey()] = a.GetValue().GetStringValue()
		}
		if attrs["service.name"] != "atoll-worker" || attrs["atoll.cluster"] != "east" || attrs["deployment.environment"] != "test" {
			t.Errorf("from %v", attrs)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the collector got nothing")
	}
}
