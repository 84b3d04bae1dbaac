// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/pace"
	"navix.sh/atoll/pkg/problem"
)

// Calls records calls of the public API over gRPC and REST. Its outer interceptors run before authentication, its inner ones after it.
type Calls struct {
	Log  *Log
	Who  func(context.Context) Who // called after authentication
	From func(context.Context) (from From, requestID string)
	Hash KeyHash
}

// record collects what later stages of a call contribute to its line.
type record struct {
	mu      sync.Mutex
	id      string
	who     Who
	repeat  bool
	refusal error
}

type recordKey struct{}

func recordOf(ctx context.Context) *record {
	r, _ := ctx.Value(recordKey{}).(*record)
	return r
}

// note changes the record of a call, if it has one.
func note(ctx context.Context, change func(*record)) {
	if r := recordOf(ctx); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		change(r)
	}
}

// Identify records the caller of a call. The line then names the caller even if the call is refused later.
func Identify(ctx context.Context, who Who) { note(ctx, func(r *record) { r.who = who }) }

// MarkRepeat records that a create returned the result of an earlier one with the same claim key.
func MarkRepeat(ctx context.Context) { note(ctx, func(r *record) { r.repeat = true }) }

// Watch returns a context in which NoteRefusal stores a refusal for Refusal.
func Watch(ctx context.Context) context.Context {
	return context.WithValue(ctx, recordKey{}, &record{})
}

// NoteRefusal records that the caller was refused, and the caller's identity.
func NoteRefusal(ctx context.Context, who Who, err error) {
	note(ctx, func(r *record) { r.who, r.refusal = who, err })
}

// Refusal returns the refusal that NoteRefusal stored, or nil.
func Refusal(ctx context.Context) (Who, error) {
	r := recordOf(ctx)
	if r == nil {
		return Who{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.who, r.refusal
}

// Begin returns an event for the begin of a conversation whose caller is authenticated.
func (c *Calls) Begin(ctx context.Context, call Call) Event {
	e := c.event(ctx, call, nil, nil)
	e.ID, e.Who = c.Log.NewID(), c.Who(ctx)
	return e
}

// Settle writes the outcome of starting a conversation, or counts it as a refusal.
func (c *Calls) Settle(ctx context.Context, e Event) { c.settle(ctx, Call{Changes: true}, e) }

// RecordRefusal records a request that a handler has refused with NoteRefusal. fill sets what the request was for. It does nothing if there
// is no refusal or no log.
func (c *Calls) RecordRefusal(ctx context.Context, call Call, fill func(*Event)) {
	who, err := Refusal(ctx)
	if err == nil || c == nil || c.Log == nil {
		return
	}
	e := c.Begin(ctx, call)
	e.Stage, e.Who, e.Result = Done, who, ResultOf(err, e.Result)
	fill(&e)
	c.SettleRefusal(ctx, e)
}

// SettleRefusal is Settle for a request that was refused before it began. It also folds refusals because of too many conversations, which a
// caller can cause at any rate.
func (c *Calls) SettleRefusal(ctx context.Context, e Event) {
	switch problem.Reason(e.Reason) {
	case problem.RateLimited, problem.Quota:
		c.Log.Fold(party(&e), e)
	default:
		c.Settle(ctx, e)
	}
}

// Admit wraps admit and records the callers that it refuses, before their call is read.
func (c *Calls) Admit(
	admit func(ctx context.Context, method string, authorization []string) (caller string, err error),
) func(ctx context.Context, method string, authorization []string) (caller string, err error) {
	return func(ctx context.Context, method string, authorization []string) (string, error) {
		ctx = Watch(ctx)
		caller, err := admit(ctx, method, authorization)
		if err != nil {
			who, noted := Refusal(ctx)
			if noted == nil {
				who = As(nil)
			}
			c.Refused(ctx, method, who, err)
		}
		return caller, err
	}
}

// As returns a caller's identity as the audit records it. nil means that the caller is unknown or needs no credentials.
func As(who *access.Identity) Who {
	if who == nil {
		return Who{Kind: Anonymous, Proof: ByNothing}
	}
	out := Who{
		Name: who.Name, Kind: User, User: cmp.Or(who.User, who.TenantUser), Team: who.Team, Groups: who.Groups,
		Proof: Proof(who.Kind), Issuer: who.Issuer,
	}
	switch who.Kind {
	case access.KindKey:
		out.Kind = Key
	case access.KindServiceAccount:
		out.Kind = ServiceAccount
	}
	return out
}

// event returns the line of a call, without its stage and result.
func (c *Calls) event(ctx context.Context, call Call, req, resp any) Event {
	e := Event{Verb: call.Verb, Object: Object{Resource: call.Resource}, Trail: Trail{TraceID: traceID(ctx)}}
	e.From, e.RequestID = c.From(ctx)
	if r := recordOf(ctx); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		e.ID, e.Who, e.Repeat = r.id, r.who, r.repeat
	}
	if req != nil {
		e.Object, e.Cluster = About(call.Resource, req, resp, e.Who, c.Hash)
	}
	return e
}

func traceID(ctx context.Context) string {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		return span.TraceID().String()
	}
	return ""
}

// Outer records the outcome of a call.
func (c *Calls) Outer(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	call, ok := Of(info.FullMethod)
	if c.Log == nil || !ok {
		return handler(ctx, req)
	}
	ctx = context.WithValue(ctx, recordKey{}, &record{id: c.Log.NewID()})
	began := c.Log.Now()
	resp, err := handler(ctx, req)
	if !call.Changes && err == nil {
		return resp, nil
	}
	e := c.event(ctx, call, req, resp)
	e.Stage, e.Result = Done, ResultOf(err, e.Result)
	e.Millis = c.Log.Now().Sub(began).Milliseconds()
	c.settle(ctx, call, e)
	return resp, err
}

// settle writes the line of a completed call, or counts it as a refusal.
func (c *Calls) settle(ctx context.Context, call Call, e Event) {
	switch problem.Reason(e.Reason) {
	case problem.Unauthenticated:
		c.Log.Fold(network(e.From.Address), e)
	case problem.Forbidden:
		c.Log.Fold(party(&e), e)
	default:
		if call.Changes {
			c.Log.After(ctx, e)
		}
	}
}

// Inner records the caller. If the audit is strict, it writes the intent before the call acts.
func (c *Calls) Inner(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := c.begin(ctx, info.FullMethod, req); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (c *Calls) begin(ctx context.Context, method string, req any) error {
	call, ok := Of(method)
	if c.Log == nil || !ok {
		return nil
	}
	Identify(ctx, c.Who(ctx))
	if !call.Changes {
		return nil
	}
	return c.Log.Before(ctx, c.event(ctx, call, req, nil))
}

// OuterStream is Outer for streams. A stream that hands out state has a line at its begin and at its end.
func (c *Calls) OuterStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	call, ok := Of(info.FullMethod)
	if c.Log == nil || !ok {
		return handler(srv, stream)
	}
	ctx := context.WithValue(stream.Context(), recordKey{}, &record{id: c.Log.NewID()})
	began := c.Log.Now()
	counted := &countedStream{ServerStream: stream, ctx: ctx, counts: call.Changes}
	err := handler(srv, counted)
	if !call.Changes && err == nil {
		return nil
	}
	e := c.event(ctx, call, nil, nil)
	e.Stage, e.Result = End, ResultOf(err, e.Result)
	if call.Changes {
		e.Conversation = &Conversation{Kind: call.Verb, BytesOut: counted.out.Load()}
	}
	e.Millis = c.Log.Now().Sub(began).Milliseconds()
	c.settle(ctx, call, e)
	return err
}

// InnerStream is Inner for streams.
func (c *Calls) InnerStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := stream.Context()
	if err := c.begin(ctx, info.FullMethod, nil); err != nil {
		return err
	}
	if call, ok := Of(info.FullMethod); ok && call.Changes && c.Log != nil {
		e := c.event(ctx, call, nil, nil)
		e.Stage, e.Outcome = Begin, OK
		c.Log.Record(e)
	}
	return handler(srv, stream)
}

// countedStream is a stream with another context, which counts what it sends.
type countedStream struct {
	grpc.ServerStream
	ctx    context.Context
	counts bool
	out    atomic.Int64
}

// Context implements grpc.ServerStream.
func (s *countedStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s *countedStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if sized, ok := m.(proto.Message); ok && s.counts && err == nil {
		s.out.Add(int64(proto.Size(sized)))
	}
	return err
}

// Refused records a call that was refused before any interceptor ran, because its credentials are missing, unknown, or not valid for this
// call. Over REST the method is not known at that time.
func (c *Calls) Refused(ctx context.Context, method string, who Who, err error) {
	if c.Log == nil {
		return
	}
	call, ok := Of(method)
	if !ok && method != "" {
		return
	}
	e := c.event(ctx, call, nil, nil)
	e.Stage, e.ID, e.Who, e.Result = Done, c.Log.NewID(), who, ResultOf(err, e.Result)
	c.settle(ctx, call, e)
}

// ResultOf returns the result of a call with the given error. It omits the message, because messages quote values.
func ResultOf(err error, r Result) Result {
	r.Code = status.Code(err).String()
	if err == nil {
		r.Outcome = OK
		return r
	}
	if errors.Is(err, context.Canceled) {
		r.Outcome, r.Reason, r.Code = Unknown, "CALLER_LEFT", "Canceled"
		return r
	}
	p := problem.FromError(err)
	r.Reason, r.Code = string(p.Reason), p.Reason.Code().String()
	for _, f := range p.Fields {
		r.Fields = append(r.Fields, strings.SplitN(f.Field, "[", 2)[0])
	}
	switch p.Reason {
	case problem.OutcomeUnknown, problem.Deadline:
		r.Outcome = Unknown
	case problem.Unavailable, problem.Internal:
		r.Outcome = Failed
	default:
		r.Outcome = Refused
	}
	return r
}

// network names the network that counts as one party, or returns "" for a text that is no address.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	return pace.Network(ip).String()
}
