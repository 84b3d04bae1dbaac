// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// Service is one gRPC service and its translation from REST.
type Service struct {
	Register func(grpc.ServiceRegistrar)
	// Translate adds the service's REST calls to mux, served through conn. Nil: gRPC only.
	Translate func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error
}

// HubOnly is the public API of a hub about itself.
func HubOnly(hub sandboxv1.HubServer) Service {
	return Service{
		Register: func(r grpc.ServiceRegistrar) { sandboxv1.RegisterHubServer(r, hub) },
		Translate: func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
			return sandboxv1.RegisterHubHandlerClient(ctx, mux, sandboxv1.NewHubClient(conn))
		},
	}
}

// Pki is the public API of the hub's certificate authority.
func Pki(pki sandboxv1.PkiServer) Service {
	return Service{
		Register: func(r grpc.ServiceRegistrar) { sandboxv1.RegisterPkiServer(r, pki) },
		Translate: func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
			return sandboxv1.RegisterPkiHandlerClient(ctx, mux, sandboxv1.NewPkiClient(conn))
		},
	}
}

// Grants is the public API of a hub about who may do what.
func Grants(keys sandboxv1.KeysServer, access sandboxv1.AccessServer) []Service {
	return []Service{
		{
			Register: func(r grpc.ServiceRegistrar) { sandboxv1.RegisterKeysServer(r, keys) },
			Translate: func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
				return sandboxv1.RegisterKeysHandlerClient(ctx, mux, sandboxv1.NewKeysClient(conn))
			},
		},
		{
			Register: func(r grpc.ServiceRegistrar) { sandboxv1.RegisterAccessServer(r, access) },
			Translate: func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
				return sandboxv1.RegisterAccessHandlerClient(ctx, mux, sandboxv1.NewAccessClient(conn))
			},
		},
	}
}

// Public is the public API of hubs and workers: every service of atoll.sandbox.v1 except Hub. A service that a server does not
// embed fails with UNIMPLEMENTED.
func Public(
	sandboxes sandboxv1.SandboxesServer, claims sandboxv1.ClaimsServer, clusters sandboxv1.ClustersServer,
	envs sandboxv1.EnvsServer, templates sandboxv1.TemplatesServer,
) []Service {
	return []Service{
		{
			Register: func(r grpc.ServiceRegistrar) { sandboxv1.RegisterSandboxesServer(r, sandboxes) },
			Translate: func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
				return sandboxv1.RegisterSandboxesHandlerClient(ctx, mux, sandboxv1.NewSandboxesClient(conn))
			},
		},
		{
			Register: func(r grpc.ServiceRegistrar) { sandboxv1.RegisterClaimsServer(r, claims) },
			Translate: func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
				return sandboxv1.RegisterClaimsHandlerClient(ctx, mux, sandboxv1.NewClaimsClient(conn))
			},
		},
		{
			Register: func(r grpc.ServiceRegistrar) { sandboxv1.RegisterClustersServer(r, clusters) },
			Translate: func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
				return sandboxv1.RegisterClustersHandlerClient(ctx, mux, sandboxv1.NewClustersClient(conn))
			},
		},
		{
			Register: func(r grpc.ServiceRegistrar) { sandboxv1.RegisterEnvsServer(r, envs) },
			Translate: func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
				return sandboxv1.RegisterEnvsHandlerClient(ctx, mux, sandboxv1.NewEnvsClient(conn))
			},
		},
		{
			Register: func(r grpc.ServiceRegistrar) { sandboxv1.RegisterTemplatesServer(r, templates) },
			Translate: func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
				return sandboxv1.RegisterTemplatesHandlerClient(ctx, mux, sandboxv1.NewTemplatesClient(conn))
			},
		},
	}
}
