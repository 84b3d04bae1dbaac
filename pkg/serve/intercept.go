// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

const (
	// idempotencyKey is the REST header, and the metadata that carries it.
	idempotencyKey = "idempotency-key"
	// pathClaimKey carries a claim key that could not stay in the path; see carrySlashes.
	pathClaimKey = "atoll-path-claim-key"
)

// ExplainErrors adds a reason to every error without one, and the claim key of the call.
func ExplainErrors(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if err == nil {
		return resp, nil
	}
	return nil, explain(err, claimKey(req))
}

func explainStreamErrors(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := handler(srv, stream); err != nil {
		return explain(err, "")
	}
	return nil
}

func explain(err error, key string) error {
	if st, ok := status.FromError(err); ok && st.Code() == codes.Canceled || errors.Is(err, context.Canceled) {
		return err // the caller has left; the reason would not be read
	}
	e := *problem.FromError(err)
	if e.ClaimKey == "" {
		e.ClaimKey = key
	}
	return &e
}

func claimKey(req any) string {
	if r, ok := req.(interface{ GetClaimKey() string }); ok {
		return r.GetClaimKey()
	}
	return ""
}

// adoptClaimKey takes the claim key of a REST call from its header.
func adoptClaimKey(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	switch r := req.(type) {
	case *sandboxv1.CreateSandboxRequest:
		key := header(ctx, idempotencyKey)
		if key == "" || key == r.GetClaimKey() {
			break
		}
		if r.GetClaimKey() != "" {
			return nil, problem.InvalidField("claimKey", r.GetClaimKey(), "the value of the header Idempotency-Key, or nothing")
		}
		r.ClaimKey = key
	case *sandboxv1.GetClaimRequest:
		if key := header(ctx, pathClaimKey); key != "" {
			r.ClaimKey = key
		}
	case *sandboxv1.CancelClaimRequest:
		if key := header(ctx, pathClaimKey); key != "" {
			r.ClaimKey = key
		}
	}
	return handler(ctx, req)
}

func header(ctx context.Context, name string) string {
	if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
		return values[0]
	}
	return ""
}
