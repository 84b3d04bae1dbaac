// SPDX-License-Identifier: Apache-2.0

package localapi

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/telemetry"
)

// leader returns a connection to the leader if that is another replica, else nil.
func (o *Options) leader() grpc.ClientConnInterface {
	if o.Elsewhere == nil {
		return nil
	}
	return o.Elsewhere()
}

// forward forwards a call to the leader. If the response is lost with the leader's connection, the error is UNAVAILABLE, as for a caller of
// the leader itself.
func (a *API) forward(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	leader := a.opts.leader()
	if leader == nil {
		return handler(ctx, req)
	}
	reply, err := replyOf(info.FullMethod)
	if err != nil {
		return nil, err
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	if err := leader.Invoke(ctx, info.FullMethod, req, reply); err != nil {
		return nil, err
	}
	return reply, nil
}

// replyOf returns an empty response of a method, "/package.Service/Method".
func replyOf(method string) (proto.Message, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, fmt.Errorf("forwarding %s: %w", method, err)
	}
	described, ok := found.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("forwarding %s: it is no method", method)
	}
	reply, err := protoregistry.GlobalTypes.FindMessageByName(described.Output().FullName())
	if err != nil {
		return nil, fmt.Errorf("forwarding %s: %w", method, err)
	}
	return reply.New().Interface(), nil
}

// Register registers the services for calls that other replicas have forwarded; Interceptors returns their interceptors. They are served
// here, even if another replica leads now, so that two replicas which consider each other the leader do not forward a call back and forth.
func (a *API) Register(server grpc.ServiceRegistrar) {
	for _, service := range a.services() {
		service.Register(server)
	}
	if a.opts.Reach != nil {
		link.RegisterReach(server, a.opts.Reach)
	}
}

// reaches returns the opener for callers' conversations. It goes through the leader if that is another replica.
func (a *API) reaches() reach.Opener {
	if a.opts.Reach == nil {
		return nil
	}
	return local{through{&a.opts}}
}

// local sets the caller of conversations: a caller of this machine, which shows no credentials.
type local struct{ reach.Opener }

func (l local) Open(ctx context.Context, id string, what *federationv1.ReachCall) (reach.Tunnel, error) {
	what = proto.CloneOf(what)
	what.SandboxId, what.Caller = id, "local"
	if who := identityOf(ctx); who != nil {
		what.Caller = string(who.Kind) + ":" + who.Name
	}
	return l.Opener.Open(ctx, id, what)
}

type through struct{ opts *Options }

func (t through) Open(ctx context.Context, id string, what *federationv1.ReachCall) (reach.Tunnel, error) {
	leader := t.opts.leader()
	if leader == nil {
		return t.opts.Reach.Open(ctx, id, what)
	}
	return link.ReachThrough(ctx, leader, id, what)
}

// Interceptors returns the interceptors of forwarded calls.
func (a *API) Interceptors() []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{serve.ExplainErrors, telemetry.Unary(a.opts.Traces), refuseUnbuilt}
}
