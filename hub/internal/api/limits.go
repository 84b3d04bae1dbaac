// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"google.golang.org/grpc"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/serve"
)

// Limiter enforces the limits of teams and keys.
type Limiter interface {
	// Claim admits a claim, or returns an error. The header lines belong to the response in both cases.
	Claim(ctx context.Context, p principal.Principal, in *sandboxv1.CreateSandboxRequest) (header map[string]string, err error)
}

// limited applies limits to claims.
func limited(l Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if in, claims := req.(*sandboxv1.CreateSandboxRequest); claims {
			header, err := l.Claim(ctx, principal.From(ctx), in)
			for name, value := range header {
				serve.SetHeader(ctx, name, value)
			}
			if err != nil {
				return nil, err
			}
		}
		return handler(ctx, req)
	}
}
