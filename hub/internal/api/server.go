// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/kubeproxy"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/mcpserver"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/telemetry"
)

// Options configure the server.
type Options struct {
	Claims    Claims
	Sandboxes Sandboxes
	Reach     reach.Opener       // nil: sandboxes cannot be reached
	Proxy     *kubeproxy.Options // nil: the API servers of clusters cannot be reached; Audit is set here
	Tokens    reach.Tokens       // tokens of sandboxes' daemons; nil: files and processes are not served
	Fleet     Fleet
	Hub       Hub
	Catalog   Catalog                   // nil: there is none
	Shares    Allotments                // nil: nothing is divided
	Templates sandboxv1.TemplatesServer // with Catalog
	Authority Authority
	Keys      sandboxv1.KeysServer   // nil: it has none
	Access    sandboxv1.AccessServer // nil: it has none
	Limiter   Limiter                // nil: callers have no limits of their own
	Auth      *Authenticator         // nil: every caller may do everything
	TLS       *tls.Config            // nil: plain text
	Traces    trace.TracerProvider   // nil: no spans
	Metrics   prometheus.Registerer  // nil: none
	Clock     clock.PassiveClock
	Limits    serve.Limits
	Web       serve.Web
	MCP       *mcpserver.Handler // nil: none
	Audit     *audit.Log         // nil: none
	Log       logr.Logger
}

// New returns a server of the public API, to be run on a listener.
func New(o Options) (*Server, error) {
	measure, err := newCalls(o.Metrics, o.Clock)
	if err != nil {
		return nil, err
	}
	audited := newAudit(o.Audit)
	opts := serve.Options{
		Services: append(serve.Public(sandboxes{claims: o.Claims, service: o.Sandboxes}, claimKeys{claims: o.Claims},
			clusters{fleet: o.Fleet, authority: o.Authority, shares: o.Shares},
			envs{fleet: o.Fleet, service: o.Sandboxes, catalog: o.Catalog, shares: o.Shares}, o.templates()),
			serve.HubOnly(&hub{opts: o.Hub}), serve.Pki(authorities{authority: o.Authority})),
		Unary:   []grpc.UnaryServerInterceptor{telemetry.Unary(o.Traces), measure.unary, audited.Outer},
		Stream:  []grpc.StreamServerInterceptor{audited.OuterStream},
		OpenAPI: sandboxv1.OpenAPI,
		TLS:     o.TLS,
		Limits:  o.Limits,
		Web:     o.Web,
		Log:     o.Log,
	}
	if o.Auth != nil {
		if o.Metrics != nil {
			if opts.Metrics, err = serve.NewMetrics(o.Metrics, "atoll_hub"); err != nil {
				return nil, err
			}
		}
		opts.Admit = measure.admit(audited.Admit(o.Auth.Admit))
		opts.Unary = append(opts.Unary, o.Auth.Unary)
		opts.Stream = append(opts.Stream, o.Auth.Stream)
	}
	if o.Keys != nil && o.Access != nil {
		opts.Services = append(opts.Services, serve.Grants(o.Keys, o.Access)...)
	}
	opts.Unary = append(opts.Unary, audited.Inner)
	opts.Stream = append(opts.Stream, audited.InnerStream)
	opts.Unary = append(opts.Unary, serve.Journal(o.Log, caller, ledger.KeyHash))
	if o.Limiter != nil {
		opts.Unary = append(opts.Unary, limited(o.Limiter))
	}
	handler := reach.NewHandler(reach.Audit(o.Reach, audited), o.Log)
	handler.Tokens = o.Tokens
	handler.Caller = func(ctx context.Context) string { return principal.From(ctx).Fingerprint() }
	handler.Domain = o.Web.Domain(serve.Access(o.Auth != nil))
	var proxy *kubeproxy.Handler
	if o.Proxy != nil && o.Auth != nil { // without credentials there is no caller to impersonate
		own := *o.Proxy
		own.Audit = audited
		proxy = kubeproxy.New(own)
	}
	opts.Further = func(r *http.Request) http.Handler {
		h := handler.Match(r) // first: a host of a sandbox serves nothing else
		if h == nil {
			h = o.MCP.Match(r)
			if h != nil && o.Auth != nil {
				h = auditSession(audited, o.Auth.HTTP(h))
			}
			if h != nil {
				return h
			}
			return proxy.Match(r, o.Auth.HTTP)
		}
		if o.Auth == nil {
			return h
		}
		return handler.AuditRefusals(audited, o.Auth.HTTP(h))
	}
	server, err := serve.New(opts)
	if err != nil {
		return nil, err
	}
	return &Server{Server: server, reach: handler, proxy: proxy, sandboxes: o.Sandboxes, mcp: o.MCP}, nil
}

func caller(ctx context.Context) serve.Caller {
	p := principal.From(ctx)
	return serve.Caller{Name: p.Name, Team: p.Team, User: p.User}
}

// Server serves the public API.
type Server struct {
	*serve.Server
	reach     *reach.Handler
	proxy     *kubeproxy.Handler
	sandboxes Sandboxes
	mcp       *mcpserver.Handler
}

// Serve serves lis until ctx ends. Then sessions of agents release their sandboxes, for which calls are served a moment longer. After that,
// conversations with sandboxes and watches end at once.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	ctx, stop := afterwards(ctx, s.mcp.Close)
	defer stop()
	defer serve.AtEnd(ctx, func() {
		s.reach.Close()
		s.proxy.Close()
		if s.sandboxes != nil {
			s.sandboxes.CloseWatches()
		}
	})()
	return s.Server.Serve(ctx, lis)
}

// afterwards returns a context that ends after last has returned. last is called when ctx ends.
func afterwards(ctx context.Context, last func()) (context.Context, context.CancelFunc) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		defer end()
		last()
	})
	return longer, func() {
		forget()
		end()
	}
}

func (o Options) templates() sandboxv1.TemplatesServer {
	if o.Templates == nil {
		return noTemplates{}
	}
	return o.Templates
}

// noTemplates implements the service Templates of a hub without a catalogue.
type noTemplates struct {
	sandboxv1.UnimplementedTemplatesServer
}

func (noTemplates) GetTemplate(context.Context, *sandboxv1.GetTemplateRequest) (*sandboxv1.Template, error) {
	return nil, noCatalogue()
}

func (noTemplates) PutTemplate(context.Context, *sandboxv1.PutTemplateRequest) (*sandboxv1.Template, error) {
	return nil, noCatalogue()
}

func (noTemplates) DeleteTemplate(context.Context, *sandboxv1.DeleteTemplateRequest) (*emptypb.Empty, error) {
	return nil, noCatalogue()
}
