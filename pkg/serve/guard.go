// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto" // also registers the codec
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
	protobuf "google.golang.org/protobuf/proto"

	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/pace"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/tally"
)

// streamWindow bounds what a stream may send before its handler reads it. It is fixed; because gRPC would let it grow to 16 MiB.
const streamWindow = 64 << 10

const (
	pingAfter   = time.Minute
	pingTimeout = 20 * time.Second
)

// guard checks the input of gRPC callers. It authenticates the caller before a message is read, bounds what is read, and checks the message
// before it is decoded. It does this in the method handlers, because gRPC's hook for it, the tap, keeps a timer for each refused call until
// the deadline that the caller set.
type guard struct {
	limits Limits
	admit  Admit
	known  *intake              // bodies of callers that presented credentials, where these are required
	open   *intake              // bodies of callers that did not
	calls  *tally.Tally[string] // in flight, by caller
	// untaken counts calls from their arrival until their response is sent.
	untaken *untaken
	// responses counts the bytes of responses.
	responses *responses
	// unseen holds an entry for each call whose caller is not checked yet. While it is full, no connection is read, because calls with their
	// headers arrive faster than they can be refused.
	unseen chan struct{}
	// paces limits the calls of each caller. It is nil for a server without credentials, where all callers are local.
	paces *paces
}

// maxUnseen is the number of calls that may wait for the check. A header takes three times its size in memory.
const maxUnseen = 128

func newGuard(limits Limits, admit Admit) *guard {
	return &guard{
		limits: limits, admit: admit, known: newIntake(), open: newOpenIntake(), calls: tally.New[string](limits.Calls),
		untaken: newUntaken(maxUntaken, limits.BodyTimeout), responses: newResponses(), unseen: make(chan struct{}, maxUnseen),
	}
}

// Admit authenticates a caller. It returns the name under which the caller's share is counted, or an error. method is empty while it is
// unknown. Admit must return quickly.
type Admit func(ctx context.Context, method string, authorization []string) (caller string, err error)

func (g *guard) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(g.tap),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.MaxRecvMsgSize(g.limits.BodyBytes),
		grpc.MaxHeaderListSize(uint32(g.limits.HeaderBytes)), // at most 1 MiB
		grpc.MaxConcurrentStreams(uint32(g.limits.Streams)),  // at most 65536
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(streamWindow),
		grpc.ConnectionTimeout(g.limits.HeaderTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: g.limits.IdleTimeout, Time: pingAfter, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
}

// call is the guard's state of a call.
type call struct {
	meter   *meter
	streams *pacedStreams      // nil: its connection is closed
	giveUp  context.CancelFunc // ends the handler's reads
	seen    func()             // removes the call from unseen
}

type callKey struct{}

// tap runs in the connection's reader, so waiting here blocks only that connection. It is the only place that can change the context of a
// call's reads.
func (g *guard) tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	g.unseen <- struct{}{}
	c := &call{}
	if p, ok := peer.FromContext(ctx); ok {
		var returned func()
		if c.streams, returned = g.untaken.runs(p.Addr); c.streams != nil {
			c.meter = c.streams.meter
		}
		context.AfterFunc(ctx, returned)
	}
	ctx, giveUp := context.WithCancel(ctx)
	seen := sync.OnceFunc(func() { <-g.unseen })
	// A call of an unknown method is never checked, so its entry ends with its context.
	ended := context.AfterFunc(ctx, seen)
	c.giveUp, c.seen = giveUp, func() { seen(); ended() }
	return context.WithValue(ctx, callKey{}, c), nil
}

// registrar registers services whose unary methods are guarded. Streams are guarded by an interceptor, which runs before
// anything is read.
func (g *guard) registrar(to grpc.ServiceRegistrar) grpc.ServiceRegistrar { return guarded{g, to} }

type guarded struct {
	guard *guard
	to    grpc.ServiceRegistrar
}

func (r guarded) RegisterService(desc *grpc.ServiceDesc, impl any) {
	own := *desc
	own.Methods = nil
	for _, method := range desc.Methods {
		name, inner := "/"+desc.ServiceName+"/"+method.MethodName, method.Handler
		method.Handler = func(srv any, ctx context.Context, dec func(any) error, chain grpc.UnaryServerInterceptor) (any, error) {
			caller, err := r.guard.check(ctx, name)
			if err != nil {
				return nil, explain(err, "")
			}
			if !r.guard.calls.Enter(caller) {
				return nil, r.guard.manyCalls()
			}
			defer r.guard.calls.Leave(caller)
			var unread error
			var request any
			out, err := inner(srv, ctx, func(in any) error {
				request, unread = in, r.guard.receive(ctx, name, caller, dec, in)
				return unread
			}, chain)
			if unread != nil {
				return refuseUnread(ctx, srv, name, request, explain(unread, ""), chain)
			}
			if err != nil {
				return nil, err
			}
			if out, err = r.guard.respond(ctx, caller, out); err != nil {
				return nil, explain(err, "")
			}
			return out, nil
		}
		own.Methods = append(own.Methods, method)
	}
	r.to.RegisterService(&own, impl)
}

// refuseUnread passes a request that cannot be decoded through the interceptors, so that its refusal is authorized, counted and audited
// like any other.
func refuseUnread(ctx context.Context, srv any, method string, request any, why error, chain grpc.UnaryServerInterceptor) (any, error) {
	if message, ok := request.(protobuf.Message); ok {
		protobuf.Reset(message) // part of it may have been read
	}
	if chain == nil {
		return nil, why
	}
	return chain(ctx, request, &grpc.UnaryServerInfo{Server: srv, FullMethod: method},
		func(context.Context, any) (any, error) { return nil, why })
}

// open reports whether a method needs no credentials. Health probes call such a method.
func open(method string) bool { return method == healthv1.Health_Check_FullMethodName }

// check authenticates the caller before any of the message is read.
func (g *guard) check(ctx context.Context, method string) (caller string, err error) {
	var meter *meter
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		defer c.seen()
		meter = c.meter
	}
	if g.admit != nil && !open(method) {
		if caller, err = g.admit(ctx, method, metadata.ValueFromIncomingContext(ctx, "authorization")); err != nil {
			meter.fail()
			return "", err
		}
		meter.admit(caller)
		// The connection is not read while its caller exceeds its rate.
		if _, err := g.paces.call(caller); err != nil {
			return "", err
		}
	}
	stream, _ := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if stream == nil {
		return "", problem.New(problem.Internal, "the transport does not tell how messages are encoded")
	}
	if how := stream.RecvCompress(); how != "" && how != encoding.Identity {
		return "", problem.InvalidField("grpc-encoding", clipped(how), "identity: requests are not compressed")
	}
	if caller == "" {
		caller = addressOf(ctx)
	}
	return caller, nil
}

// addressOf names an unauthenticated caller.
func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return pace.Origin(p.Addr).String()
	}
	return ""
}

// receive reads and decodes a message.
func (g *guard) receive(ctx context.Context, method, caller string, read func(any) error, into any) error {
	intake := g.known
	if open(method) {
		intake = g.open
	}
	leave, err := intake.enter(ctx, caller, g.limits.BodyTimeout)
	if err != nil {
		return err
	}
	defer leave()
	message, ok := into.(protobuf.Message)
	c, ok2 := ctx.Value(callKey{}).(*call)
	if !ok || !ok2 {
		return problem.New(problem.Internal, "%T cannot be received", into)
	}
	timer := time.AfterFunc(g.limits.BodyTimeout, c.giveUp)
	defer timer.Stop()
	r := &received{into: message}
	if err := read(r); err != nil {
		return err // gRPC already sent its own error to the caller
	}
	return r.err
}

// stream guards streams, whose handlers call RecvMsg themselves.
func (g *guard) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	caller, err := g.check(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if !g.calls.Enter(caller) {
		return g.manyCalls()
	}
	defer g.calls.Leave(caller)
	return handler(srv, &guardedStream{ServerStream: stream, guard: g, method: info.FullMethod, caller: caller})
}

func (g *guard) manyCalls() error {
	return problem.New(problem.RateLimited, "this caller has %d calls under way already", g.limits.Calls).WithRetryAfter(time.Second)
}

type guardedStream struct {
	grpc.ServerStream
	guard  *guard
	method string
	caller string
	began  bool
}

// RecvMsg sets a deadline for the first message. Later messages may arrive at any time.
func (s *guardedStream) RecvMsg(m any) error {
	if !s.began {
		s.began = true
		return s.guard.receive(s.Context(), s.method, s.caller, s.ServerStream.RecvMsg, m)
	}
	message, ok := m.(protobuf.Message)
	if !ok {
		return problem.New(problem.Internal, "%T cannot be received", m)
	}
	r := &received{into: message}
	if err := s.ServerStream.RecvMsg(r); err != nil {
		return err
	}
	return r.err
}

// received is a message that is decoded only if it is within bounds. It carries the error, because gRPC would replace an error of the
// codec.
type received struct {
	into protobuf.Message
	err  error
}

// codec is gRPC's own codec, except for received and outgoing messages.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if o, ok := v.(*outgoing); ok {
		return o.marshal()
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*received)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	wire := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer wire.Free()
	if r.err = checkProto(wire.ReadOnlyData(), r.into.ProtoReflect().Descriptor()); r.err != nil {
		return nil
	}
	if err := protobuf.Unmarshal(wire.ReadOnlyData(), r.into); err != nil {
		r.err = problem.New(problem.Invalid, "the request is no %s: %w", r.into.ProtoReflect().Descriptor().FullName(), err)
	}
	return nil
}

// clipped truncates long input before it is repeated in an error.
func clipped(s string) string { return clip.Text(s, 64) }
