// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/telemetry"
)

func dispatchAttributes(clusterID string, d *federationv1.Dispatch) []attribute.KeyValue {
	attrs := []attribute.KeyValue{telemetry.Cluster.String(clusterID), telemetry.Call.String(link.CallName(d))}
	if c := d.GetClaim(); c != nil {
		attrs = append(attrs, telemetry.Pool.String(c.GetPool()))
	}
	if keyed, ok := keyOf(d); ok && keyed.GetKeyHash() != "" {
		attrs = append(attrs, telemetry.KeyHash.String(keyed.GetKeyHash()), telemetry.Attempt.Int(int(keyed.GetAttempt())))
	}
	return attrs
}

type keyed interface {
	GetKeyHash() string
	GetAttempt() int32
}

func keyOf(d *federationv1.Dispatch) (keyed, bool) {
	switch c := d.GetCall().(type) {
	case *federationv1.Dispatch_Claim:
		return c.Claim, true
	case *federationv1.Dispatch_Lookup:
		return c.Lookup, true
	case *federationv1.Dispatch_Cancel:
		return c.Cancel, true
	case *federationv1.Dispatch_Withdraw:
		return c.Withdraw, true
	}
	return nil, false
}

// endDispatch records the outcome of a dispatch. The worker's span below it, if it has arrived, shows the reason.
func endDispatch(span trace.Span, answer *federationv1.Answer, err error) {
	label := outcomeLabel(answer, err)
	if err != nil {
		span.SetStatus(codes.Error, label)
	}
	span.SetAttributes(telemetry.Outcome.String(label))
	if id := answer.GetSandbox().GetId(); id != "" {
		span.SetAttributes(telemetry.Sandbox.String(id))
	}
	span.End()
}
