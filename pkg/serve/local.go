// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"navix.sh/atoll/pkg/problem"
)

// localConn is a client connection whose other end is the services registered with it. It saves REST calls a round trip through a
// connection, and leaves the caller's address in their context.
type localConn struct {
	chain   grpc.UnaryServerInterceptor
	around  []grpc.StreamServerInterceptor
	methods map[string]localMethod
	streams map[string]localStream
}

type localStream struct {
	impl any
	desc grpc.StreamDesc
}

type localMethod struct {
	impl any
	desc grpc.MethodDesc
}

func newLocalConn(interceptors []grpc.UnaryServerInterceptor, around []grpc.StreamServerInterceptor) *localConn {
	return &localConn{chain: chain(interceptors), around: around, methods: map[string]localMethod{}, streams: map[string]localStream{}}
}

// RegisterService makes localConn a grpc.ServiceRegistrar.
func (c *localConn) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, method := range desc.Methods {
		c.methods["/"+desc.ServiceName+"/"+method.MethodName] = localMethod{impl: impl, desc: method}
	}
	for _, stream := range desc.Streams {
		c.streams["/"+desc.ServiceName+"/"+stream.StreamName] = localStream{impl: impl, desc: stream}
	}
}

// Invoke calls the method in this goroutine.
func (c *localConn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	m, ok := c.methods[method]
	if !ok {
		return problem.New(problem.Unimplemented, "%s is not served here", method)
	}
	unread := incomingFrom(ctx).complete(args)
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		ctx = metadata.NewIncomingContext(metadata.NewOutgoingContext(ctx, nil), md)
	}
	if unread != nil {
		_, err := refuseUnread(ctx, m.impl, method, args, explain(unread, claimKey(args)), c.chain)
		return err
	}
	out, err := m.desc.Handler(m.impl, ctx, func(in any) error { return assign(in, args) }, c.chain)
	if err != nil {
		return err
	}
	if err := hold(ctx, out); err != nil {
		return explain(err, claimKey(args))
	}
	return assign(reply, out)
}

// stream calls a method that streams, in this goroutine.
func (c *localConn) stream(method string, stream grpc.ServerStream) error {
	s, ok := c.streams[method]
	if !ok {
		return problem.New(problem.Unimplemented, "%s is not served here", method)
	}
	info := &grpc.StreamServerInfo{FullMethod: method, IsServerStream: s.desc.ServerStreams, IsClientStream: s.desc.ClientStreams}
	handler := s.desc.Handler
	for i := len(c.around) - 1; i >= 0; i-- {
		around, inner := c.around[i], handler
		handler = func(srv any, stream grpc.ServerStream) error { return around(srv, stream, info, inner) }
	}
	return handler(s.impl, stream)
}

// NewStream always fails; REST calls of streaming methods use stream instead.
func (c *localConn) NewStream(_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, problem.New(problem.Unimplemented, "%s does not stream over REST", method)
}

func assign(to, from any) error {
	dst, ok := to.(proto.Message)
	src, ok2 := from.(proto.Message)
	if !ok || !ok2 {
		return fmt.Errorf("%T and %T are not both messages", to, from)
	}
	proto.Merge(dst, src)
	return nil
}

// chain combines interceptors into one, the first outermost.
func chain(interceptors []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		next := handler
		for i := len(interceptors) - 1; i >= 0; i-- {
			interceptor, inner := interceptors[i], next
			next = func(ctx context.Context, req any) (any, error) { return interceptor(ctx, req, info, inner) }
		}
		return next(ctx, req)
	}
}
