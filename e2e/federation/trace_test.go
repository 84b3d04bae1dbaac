// SPDX-License-Identifier: Apache-2.0

//go:build !kind

package federation_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// collector receives the traces of all programs.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	server *grpc.Server

	mu    sync.Mutex
	spans []span // of the trace of tracedID
}

// span is one span of a trace; its name begins with its program.
type span struct {
	id, parent, name string
	text             string // all of it
}

// The trace of the one caller whose calls are checked.
const tracedID, tracedParent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

// traces is the collector of hub and workers; nil without one.
var traces *collector

// startCollector makes later programs trace every call.
func startCollector(opts *stack.Options) error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for traces: %w", err)
	}
	traces = &collector{server: grpc.NewServer()}
	collectorv1.RegisterTraceServiceServer(traces.server, traces)
	go func() { _ = traces.server.Serve(lis) }()
	endpoint := "--otlp-endpoint=http://" + lis.Addr().String()
	opts.HubArgs, opts.WorkerArgs = append(opts.HubArgs, endpoint), append(opts.WorkerArgs, endpoint)
	return nil
}

func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range r.GetResourceSpans() {
		program := ""
		for _, a := range from.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				program = strings.TrimPrefix(a.GetValue().GetStringValue(), "atoll-")
			}
		}
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				if hex.EncodeToString(s.GetTraceId()) == tracedID {
					c.spans = append(c.spans, newSpan(program, s))
				}
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func newSpan(program string, s *tracev1.Span) span {
	return span{
		id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()),
		name: program + ": " + s.GetName(), text: s.String(),
	}
}

// tree returns the trace as lines, each indented below its parent and then sorted, and the whole text of its spans.
func (c *collector) tree() (lines []string, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var walk func(parent, indent string)
	walk = func(parent, indent string) {
		for _, s := range c.spans {
			if s.parent == parent {
				lines = append(lines, indent+s.name)
				text += s.text
				walk(s.id, indent+"  ")
			}
		}
	}
	walk(tracedParent, "")
	if more := len(c.spans) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("? and %d spans whose parent is missing", more))
	}
	slices.Sort(lines)
	return lines, text
}

// One trace holds a call from the hub's API to the write on a Pod and back, and never the claim key itself, the user or a part of the body.
func TestACallIsOneTraceAcrossProcesses(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "traced", equally(1)...)
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", "00-"+tracedID+"-"+tracedParent+"-01")

	released := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{
		ClaimKey: unused("secret-key"), User: "secret-user", Metadata: map[string]string{"note": "secret-body"},
	})
	e.mustRelease(ctx, t, hub, released)
	key := unused("secret-key")
	e.caller.Holdings.Releasing(e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{ClaimKey: key}))
	_, err := hub.CancelClaim(ctx, &sandboxv1.CancelClaimRequest{ClaimKey: key, Namespace: namespace})
	must.Succeed(t, err)

	claim := []string{
		"hub: Sandboxes/CreateSandbox",
		"  hub: route",
		"  hub: ledger write", // before the dispatch
		"  hub: dispatch",
		"    worker: claim",
		"      worker: queue",
		"      worker: pod write",
		"      worker: start",
		"  hub: ledger write", // after the response
	}
	want := slices.Concat(claim, claim, []string{
		"hub: Sandboxes/ReleaseSandbox", "  hub: ledger write", "  hub: dispatch", "    worker: release", "      worker: pod write",
		"hub: Claims/CancelClaim", "  hub: ledger write", "  hub: dispatch", "    worker: cancel", "      worker: pod write",
	})
	slices.Sort(want)
	var all string
	wait.For(t, patience, "one whole trace", func(context.Context) error {
		lines, text := traces.tree()
		all = text
		diff := cmp.Diff(want, lines)
		return wait.If(diff == "", diff)
	})
	if strings.Contains(all, "secret-") || !strings.Contains(all, "atoll.claim_key_hash") {
		t.Errorf("a claim key, user or part of a body in a trace, or no hash of the key: %s", all)
	}
}
