// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// ReachThrough connects to a sandbox through the leading replica. The context bounds only the opening. Errors are those of the leading
// replica.
func ReachThrough(ctx context.Context, leader grpc.ClientConnInterface, id string, what *federationv1.ReachCall) (reach.Tunnel, error) {
	call := proto.CloneOf(what)
	call.SandboxId, call.Token = id, rand.Text()
	client := federationv1.NewReplicasClient(leader)
	stream, cancel, err := openFrames(ctx, context.WithoutCancel(ctx), client.Reach,
		&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Call{Call: call}})
	if err != nil {
		return nil, notReached(ctx, err)
	}
	return newThrough(stream, cancel, client.AwaitEnd, call.GetToken()), nil
}

// awaitEnd is an RPC that returns when a conversation has ended.
type awaitEnd func(context.Context, *federationv1.AwaitEndRequest, ...grpc.CallOption) (
	grpc.ServerStreamingClient[federationv1.AwaitEndResponse], error)

func newThrough(stream openedFrames, cancel context.CancelFunc, await awaitEnd, token string) *through {
	t := &through{Tunnel: &Tunnel{stream: stream, closed: make(chan struct{})}, cancel: cancel, cut: make(chan struct{})}
	go func() {
		defer close(t.cut)
		// The result does not matter: either the conversation has ended at the leader, or its state is unknown.
		if end, err := await(stream.Context(), &federationv1.AwaitEndRequest{Token: token}); err == nil {
			_, _ = end.Recv()
		}
	}()
	return t
}

// notReached returns the leader's error, or Unavailable if the leader returned none.
func notReached(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch st := status.Convert(err); {
	case len(st.Details()) > 0:
		return problem.FromError(err)
	case st.Code() == codes.Unimplemented, st.Code() == codes.Canceled: // the peer has an earlier build, or is no longer the leader
		return problem.New(problem.Unavailable, "the replica that leads did not respond: %w", err).WithRetryAfter(time.Second)
	}
	return problem.FromError(err)
}

// through is a tunnel whose stream was opened by the caller's side, which also cancels it.
type through struct {
	*Tunnel
	cancel context.CancelFunc
	cut    chan struct{}
}

// Close ends the tunnel.
func (t *through) Close(error) { t.cancel() }

// Cut returns a channel that is closed when the leader has ended the tunnel or is gone, or when Close was called.
func (t *through) Cut() <-chan struct{} { return t.cut }

// RegisterReach makes a gRPC server connect other replicas to sandboxes.
func RegisterReach(server grpc.ServiceRegistrar, opener reach.Opener) {
	federationv1.RegisterReplicasServer(server, &reaching{opener: opener})
}

type reaching struct {
	federationv1.UnimplementedReplicasServer
	opener reach.Opener
	Conversations
}

// Conversations tracks the conversations that other replicas have with sandboxes here, by token. The zero value is empty.
type Conversations struct {
	mu    sync.Mutex
	under map[string]chan struct{} // closed when the conversation has ended
}

var errNoCall = problem.New(problem.Invalid, "the first frame says into which sandbox to reach")

// Begin registers a conversation. The caller calls end when it has ended. Begin rejects a token that is empty or in use.
func (r *Conversations) Begin(token string) (end func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.under[token]; taken || token == "" {
		return nil, false
	}
	over := make(chan struct{})
	if r.under == nil {
		r.under = map[string]chan struct{}{}
	}
	r.under[token] = over
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.under, token)
		close(over)
	}, true
}

// AwaitEnd implements federationv1.ReplicasServer.
func (r *reaching) AwaitEnd(
	request *federationv1.AwaitEndRequest, stream grpc.ServerStreamingServer[federationv1.AwaitEndResponse],
) error {
	return r.Await(request, stream)
}

// Await returns when the conversation has ended, or immediately if it does not exist.
func (r *Conversations) Await(
	request *federationv1.AwaitEndRequest, stream grpc.ServerStreamingServer[federationv1.AwaitEndResponse],
) error {
	r.mu.Lock()
	over := r.under[request.GetToken()]
	r.mu.Unlock()
	if over != nil {
		select {
		case <-over:
		case <-stream.Context().Done():
		}
	}
	return nil
}

// Reach implements federationv1.ReplicasServer.
func (r *reaching) Reach(stream TunnelStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	call := first.GetCall()
	end, ok := r.Begin(call.GetToken())
	if !ok {
		return errNoCall.GRPCStatus().Err()
	}
	defer end()
	sandbox, err := r.opener.Open(stream.Context(), call.GetSandboxId(), call)
	if err != nil {
		return problem.FromError(err).GRPCStatus().Err()
	}
	if err := stream.SendHeader(nil); err != nil {
		sandbox.Close(err)
		return err
	}
	JoinStream(stream, sandbox)
	return nil
}

// JoinStream connects the caller at the other end of a stream to a sandbox, until the conversation has ended.
func JoinStream(stream TunnelStream, sandbox reach.Tunnel) {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		_ = reach.Join(NewTunnelCaller(stream, cancel), sandbox) // the caller already got the reason
	}()
	select {
	case <-joined:
	case <-ctx.Done(): // the stream ends when its handler returns, and Join with the stream
	}
}
