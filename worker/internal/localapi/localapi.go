// SPDX-License-Identifier: Apache-2.0

package localapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/environment"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/watch"
	"navix.sh/atoll/worker/internal/claim"
)

// DefaultAddress is the default address of the local API.
const DefaultAddress = "127.0.0.1:8082"

// Claims serves claims.
type Claims interface {
	Create(ctx context.Context, c claim.Claim) (*sandboxv1.Sandbox, error)
	Lookup(ctx context.Context, keyHash string, attempt int32) (*sandboxv1.Sandbox, error)
	LookupLatest(ctx context.Context, keyHash string) (*sandboxv1.Sandbox, error)
	Cancel(ctx context.Context, keyHash string, attempt int32) (*sandboxv1.Sandbox, error)
}

// Sandboxes manages sandboxes.
type Sandboxes interface {
	Get(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	List(ctx context.Context, request *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error)
	Feed(ctx context.Context, namespace, team string, send func(*federationv1.SandboxChanges) error) error
	Release(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	Update(ctx context.Context, request *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error)
	Touch(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	Pause(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	Resume(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
}

// Segments provides this cluster's part of each Env.
type Segments interface {
	// Segment returns nil for an Env that does not exist here, or has no part here.
	Segment(ctx context.Context, key segment.Key) (*segment.Segment, error)
	Segments(ctx context.Context) ([]*segment.Segment, error)
}

// Envs refreshes members of Envs.
type Envs interface {
	Refresh(ctx context.Context, request *sandboxv1.RefreshEnvRequest) (*sandboxv1.RefreshEnvResponse, error)
}

// Options configure the API. Claims, Sandboxes, Segments and ClusterID are required.
type Options struct {
	ClusterID string
	Address   string // DefaultAddress if empty
	Claims    Claims
	Sandboxes Sandboxes
	Segments  Segments
	Envs      Envs         // nil if Envs cannot be refreshed
	Reach     reach.Opener // nil if sandboxes cannot be reached
	// Environment sets the fields of a claim that its sandbox's daemon takes. If it is nil, claims with such fields fail.
	Environment environment.Environment
	// Elsewhere returns a connection to the leader if that is another replica. If it is nil, or returns nil, calls are served here.
	Elsewhere func() grpc.ClientConnInterface
	Clock     clock.PassiveClock   // for the times of decisions
	Rand      func() uint64        // breaks the router's near-ties
	Traces    trace.TracerProvider // nil: no spans
	Limits    serve.Limits
	Watches   watch.Options // limits and metrics
	Web       serve.Web
	// RefuseCredentials rejects hooks that contain a credential as text.
	RefuseCredentials bool
	// Gate authenticates and authorizes callers. It is nil if the address is on loopback and needs none.
	Gate *Gate
	TLS  *tls.Config // nil is plain text, on loopback
	// Audit records the calls; nil records nothing. A follower records the calls that it forwards, and the leader does not.
	Audit *audit.Log
	Log   logr.Logger
}

// API serves the public API for one cluster.
type API struct {
	sandboxv1.UnimplementedSandboxesServer
	sandboxv1.UnimplementedClaimsServer
	sandboxv1.UnimplementedClustersServer
	sandboxv1.UnimplementedEnvsServer
	sandboxv1.UnimplementedTemplatesServer

	opts    Options
	server  *serve.Server
	reach   *reach.Handler
	watches *watch.Service
	callers callers
}

// New returns an API. The manager or Serve runs it.
func New(opts Options) (*API, error) {
	if opts.ClusterID == "" || opts.Claims == nil || opts.Sandboxes == nil || opts.Segments == nil {
		return nil, errors.New("local API needs a cluster id, claims and segments")
	}
	if opts.Address == "" {
		opts.Address = DefaultAddress
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Rand == nil {
		opts.Rand = rand.Uint64
	}
	if err := serve.CheckLoopback(opts.Address); err != nil && (opts.Gate == nil || opts.TLS == nil) {
		return nil, err
	}
	api := &API{opts: opts}
	api.opts.Watches.Source, api.opts.Watches.Log = own{&api.opts}, opts.Log
	api.watches = watch.New(api.opts.Watches)
	opener := api.reaches()
	if opener != nil {
		opener = reach.NewBandwidth(reach.DefaultRates, clock.RealClock{}).Opener(opener)
	}
	audited := &audit.Calls{
		Log: opts.Audit, Hash: api.keyHash, From: auditedFrom,
		Who: func(ctx context.Context) audit.Who { return audit.As(identityOf(ctx)) },
	}
	api.reach = reach.NewHandler(reach.Audit(opener, audited), opts.Log)
	api.reach.Domain = opts.Web.Domain(serve.Access(opts.Gate != nil))
	journal := serve.Journal(opts.Log, func(ctx context.Context) serve.Caller { return serve.Caller{Name: callerOf(ctx)} }, api.keyHash)
	document, err := sandboxv1.WorkerOpenAPI()
	if err != nil {
		return nil, fmt.Errorf("building the local API: %w", err)
	}
	options := serve.Options{
		Services: api.services(),
		Unary:    []grpc.UnaryServerInterceptor{telemetry.Unary(opts.Traces), audited.Outer, audited.Inner, refuseUnbuilt, api.forward, journal},
		Stream:   []grpc.StreamServerInterceptor{audited.OuterStream, audited.InnerStream, api.forwardWatch},
		OpenAPI:  document,
		Further:  api.reach.Match,
		Limits:   opts.Limits,
		Web:      opts.Web,
		TLS:      opts.TLS,
		Log:      opts.Log,
	}
	if g := opts.Gate; g != nil {
		g.api, g.clock = api, clock.RealClock{}
		options.Admit = audited.Admit(g.Admit)
		options.Unary = slices.Insert(options.Unary, 2, g.Unary)
		options.Stream = slices.Insert(options.Stream, 1, g.Stream)
		options.Further = func(r *http.Request) http.Handler {
			if h := api.reach.Match(r); h != nil {
				return api.reach.AuditRefusals(audited, g.HTTP(h))
			}
			return nil
		}
	}
	server, err := serve.New(options)
	if err != nil {
		return nil, fmt.Errorf("building the local API: %w", err)
	}
	api.server = server
	return api, nil
}

func auditedFrom(ctx context.Context) (audit.From, string) {
	o := serve.OriginOf(ctx)
	return audit.From{Address: o.Address, UserAgent: o.UserAgent}, o.RequestID
}

func (a *API) services() []serve.Service { return serve.Public(a, a, a, a, a) }

// NeedLeaderElection lets followers listen as well.
func (a *API) NeedLeaderElection() bool { return false }

// Start listens until ctx ends.
func (a *API) Start(ctx context.Context) error {
	var config net.ListenConfig
	lis, err := config.Listen(ctx, "tcp", a.opts.Address)
	if err != nil {
		return fmt.Errorf("listening for the local API: %w", err)
	}
	a.opts.Log.Info("Serving the local API", "cluster", a.opts.ClusterID, "address", lis.Addr().String())
	return a.Serve(ctx, lis)
}

// Serve serves on lis until ctx ends, and closes it.
func (a *API) Serve(ctx context.Context, lis net.Listener) error {
	defer serve.AtEnd(ctx, func() {
		a.reach.Close()
		a.watches.Close()
	})()
	return a.server.Serve(ctx, lis)
}

// ServeInside serves REST to callers within the process, until ctx ends. It closes lis.
func (a *API) ServeInside(ctx context.Context, lis net.Listener) error {
	return a.server.ServeInside(ctx, lis)
}

const (
	onlyHub   = "a worker knows its own cluster only; ask the hub"
	catalogue = "the hub has the catalogue; ask the hub, or apply the object in this cluster"
)

// unbuilt maps methods that are not implemented here to the reason.
var unbuilt = map[string]string{
	sandboxv1.Clusters_ListClusters_FullMethodName:           onlyHub,
	sandboxv1.Clusters_GetCluster_FullMethodName:             onlyHub,
	sandboxv1.Clusters_DrainCluster_FullMethodName:           onlyHub,
	sandboxv1.Clusters_ForgetCluster_FullMethodName:          onlyHub,
	sandboxv1.Envs_PutEnv_FullMethodName:                     catalogue,
	sandboxv1.Envs_DeleteEnv_FullMethodName:                  catalogue,
	sandboxv1.Envs_PlanEnv_FullMethodName:                    catalogue,
	sandboxv1.Envs_ImportEnv_FullMethodName:                  catalogue,
	sandboxv1.Envs_ListEnvRevisions_FullMethodName:           catalogue,
	sandboxv1.Envs_GetRollout_FullMethodName:                 catalogue,
	sandboxv1.Envs_ControlRollout_FullMethodName:             catalogue,
	sandboxv1.Templates_ListTemplates_FullMethodName:         catalogue,
	sandboxv1.Templates_PlanTemplate_FullMethodName:          catalogue,
	sandboxv1.Templates_ListTemplateRevisions_FullMethodName: catalogue,
	sandboxv1.Templates_GetTemplate_FullMethodName:           catalogue,
	sandboxv1.Templates_PutTemplate_FullMethodName:           catalogue,
	sandboxv1.Templates_DeleteTemplate_FullMethodName:        catalogue,
}

func refuseUnbuilt(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if why, ok := unbuilt[info.FullMethod]; ok {
		return nil, problem.New(problem.Unimplemented, "%s", why)
	}
	return handler(ctx, req)
}
