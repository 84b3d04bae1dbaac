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

// service returns the Service of a server, by functions that are generated from its protobuf.
func service[S, C any](
	server S, register func(grpc.ServiceRegistrar, S), client func(grpc.ClientConnInterface) C,
	translate func(context.Context, *runtime.ServeMux, C) error,
) Service {
	return Service{
		Register: func(r grpc.ServiceRegistrar) { register(r, server) },
		Translate: func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
			return translate(ctx, mux, client(conn))
		},
	}
}

// HubOnly is the public API of a hub about itself.
func HubOnly(hub sandboxv1.HubServer) Service {
	return service(hub, sandboxv1.RegisterHubServer, sandboxv1.NewHubClient, sandboxv1.RegisterHubHandlerClient)
}

// Pki is the public API of the hub's certificate authority.
func Pki(pki sandboxv1.PkiServer) Service {
	return service(pki, sandboxv1.RegisterPkiServer, sandboxv1.NewPkiClient, sandboxv1.RegisterPkiHandlerClient)
}

// Grants is the public API of a hub about who may do what.
func Grants(keys sandboxv1.KeysServer, access sandboxv1.AccessServer) []Service {
	return []Service{
		service(keys, sandboxv1.RegisterKeysServer, sandboxv1.NewKeysClient, sandboxv1.RegisterKeysHandlerClient),
		service(access, sandboxv1.RegisterAccessServer, sandboxv1.NewAccessClient, sandboxv1.RegisterAccessHandlerClient),
	}
}

// Public is the public API of hubs and workers: every service of atoll.sandbox.v1 except Hub. A service that a server does not
// embed fails with UNIMPLEMENTED.
func Public(
	sandboxes sandboxv1.SandboxesServer, claims sandboxv1.ClaimsServer, clusters sandboxv1.ClustersServer,
	envs sandboxv1.EnvsServer, templates sandboxv1.TemplatesServer,
) []Service {
	return []Service{
		service(sandboxes, sandboxv1.RegisterSandboxesServer, sandboxv1.NewSandboxesClient, sandboxv1.RegisterSandboxesHandlerClient),
		service(claims, sandboxv1.RegisterClaimsServer, sandboxv1.NewClaimsClient, sandboxv1.RegisterClaimsHandlerClient),
		service(clusters, sandboxv1.RegisterClustersServer, sandboxv1.NewClustersClient, sandboxv1.RegisterClustersHandlerClient),
		service(envs, sandboxv1.RegisterEnvsServer, sandboxv1.NewEnvsClient, sandboxv1.RegisterEnvsHandlerClient),
		service(templates, sandboxv1.RegisterTemplatesServer, sandboxv1.NewTemplatesClient, sandboxv1.RegisterTemplatesHandlerClient),
	}
}
