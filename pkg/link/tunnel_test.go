// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
)

// over is a stream that the other end has ended with a reason, before what is sent.
type over struct{ reason *federationv1.Error }

func (over) Send(*federationv1.TunnelFrame) error {
	return status.Error(codes.Canceled, "context canceled")
}
func (over) Context() context.Context { return context.Background() }

func (o over) Recv() (*federationv1.TunnelFrame, error) {
	return &federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Failed{Failed: o.reason}}, nil
}

// TestASendToATunnelThatIsOverHasItsReason, once that was received; an HTTP client returns the error of its write.
func TestASendToATunnelThatIsOverHasItsReason(t *testing.T) {
	st := problem.New(problem.NotFound, "gone").GRPCStatus().Proto()
	tunnel := &Tunnel{stream: over{&federationv1.Error{Code: st.GetCode(), Message: st.GetMessage(), Details: st.GetDetails()}}}
	if p := problem.FromError(tunnel.Send(nil)); p.Reason != problem.Unavailable {
		t.Errorf("before the reason was received: %v", p)
	}
	if _, err := tunnel.Recv(); problem.FromError(err).Reason != problem.NotFound {
		t.Fatal(err)
	}
	if p := problem.FromError(tunnel.Send(nil)); p.Reason != problem.NotFound {
		t.Errorf("after it was: %v", p)
	}
}
