// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/telemetry"
)

// Options configure the server.
type Options struct {
	Claims  Claims
	Fleet   Fleet
	Hub     Hub
	Auth    *Authenticator        // nil: every caller may do everything
	TLS     *tls.Config           // nil: plain text
	Traces  trace.TracerProvider  // nil: no spans
	Metrics prometheus.Registerer // nil: none
	Log     logr.Logger
}

// New answers a server of the public API, to be run on a listener.
func New(o Options) (*serve.Server, error) {
	measure, err := calls(o.Metrics)
	if err != nil {
		return nil, err
	}
	opts := serve.Options{
		Services: append(serve.Public(sandboxes{claims: o.Claims}, claimKeys{claims: o.Claims}, clusters{fleet: o.Fleet},
			envs{fleet: o.Fleet, claims: o.Claims}, templates{}), serve.HubOnly(&hub{opts: o.Hub})),
		Handlers: map[string]http.Handler{},
		Unary:    []grpc.UnaryServerInterceptor{telemetry.Unary(o.Traces), measure},
		OpenAPI:  sandboxv1.OpenAPI,
		TLS:      o.TLS,
		Log:      o.Log,
	}
	if o.Auth != nil {
		opts.Unary = append(opts.Unary, o.Auth.Unary)
		opts.Stream = []grpc.StreamServerInterceptor{o.Auth.Stream}
	}
	for _, reach := range []string{"logs", "exec", "ports/{port}/{path...}"} {
		opts.Handlers["/v1/sandboxes/{id}/"+reach] = http.HandlerFunc(noReach)
	}
	return serve.New(opts)
}

func noReach(w http.ResponseWriter, _ *http.Request) {
	problem.New(problem.Unimplemented, "sandboxes cannot be reached through the hub yet; their podIp and runtimes say where they are").Write(w)
}

func (envs) DeleteEnv(context.Context, *sandboxv1.DeleteEnvRequest) (*emptypb.Empty, error) {
	return nil, noCatalogue()
}

type templates struct {
	sandboxv1.UnimplementedTemplatesServer
}

func (templates) GetTemplate(context.Context, *sandboxv1.GetTemplateRequest) (*sandboxv1.Template, error) {
	return nil, noCatalogue()
}

func (templates) PutTemplate(context.Context, *sandboxv1.PutTemplateRequest) (*sandboxv1.Template, error) {
	return nil, noCatalogue()
}

func (templates) DeleteTemplate(context.Context, *sandboxv1.DeleteTemplateRequest) (*emptypb.Empty, error) {
	return nil, noCatalogue()
}
