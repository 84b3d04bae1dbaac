// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	grpccodes "google.golang.org/grpc/codes"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/telemetry"
)

// endSpan records how a dispatch ended here.
func (a *Agent) endSpan(span trace.Span, d *federationv1.Dispatch, answer *federationv1.Answer) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.Cluster.String(a.opts.ClusterID),
		attribute.Int64("atoll.incarnation", int64(d.GetIncarnation())),
		telemetry.Outcome.String(strings.ToLower(answer.GetDisposition().String())))
	if c := d.GetClaim(); c != nil {
		span.SetAttributes(telemetry.Env.String(c.GetRequest().GetNamespace()+"/"+c.GetRequest().GetEnv()), telemetry.Pool.String(c.GetPool()))
		if c.GetKeyHash() != "" {
			span.SetAttributes(telemetry.KeyHash.String(c.GetKeyHash()), telemetry.Attempt.Int(int(c.GetAttempt())))
		}
	}
	if id := answer.GetSandbox().GetId(); id != "" {
		span.SetAttributes(telemetry.Sandbox.String(id))
	}
	if e := answer.GetError(); e != nil {
		span.SetStatus(codes.Error, grpccodes.Code(e.GetCode()).String())
	}
	span.End()
}
