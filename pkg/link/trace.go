// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"

	"go.opentelemetry.io/otel/propagation"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// w3c is used whatever the process's global propagator is, because both ends must agree.
var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// TraceContext returns the trace of ctx in the form that a dispatch carries, or nil if there is none.
func TraceContext(ctx context.Context) map[string]string {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return nil
	}
	return carrier
}

// WithTraceContext continues the trace that a dispatch carries.
func WithTraceContext(ctx context.Context, trace map[string]string) context.Context {
	return w3c.Extract(ctx, propagation.MapCarrier(trace))
}

// CallName returns the name of a dispatch's call, or "unknown" for a call of a newer hub.
func CallName(d *federationv1.Dispatch) string { return nameOf(d, "call") }
