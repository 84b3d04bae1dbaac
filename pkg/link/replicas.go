// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// ReachThrough reaches into a sandbox through the replica that leads. The context bounds the opening alone; an error is what
// that replica says.
func ReachThrough(ctx context.Context, leader grpc.ClientConnInterface, id string, what *federationv1.ReachCall) (reach.Tunnel, error) {
	call := proto.CloneOf(what)
	call.SandboxId = id
	streaming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	opened := context.AfterFunc(ctx, cancel)
	stream, err := federationv1.NewReplicasClient(leader).Reach(streaming)
	if err == nil {
		err = stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Call{Call: call}})
	}
	if err == nil || errors.Is(err, io.EOF) {
		// As in Tunnels.open: without headers the stream is over, and Recv knows why.
		var reached metadata.MD
		if reached, err = stream.Header(); err == nil && reached == nil {
			if _, err = stream.Recv(); err == nil {
				err = errTunnelOver
			}
		}
	}
	if err == nil && !opened() {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, problem.FromError(err)
	}
	return &through{Tunnel: &Tunnel{stream: stream, closed: make(chan struct{})}, cancel: cancel}, nil
}

// through is a tunnel whose stream its caller's side has opened, and ends.
type through struct {
	*Tunnel
	cancel context.CancelFunc
}

// Close ends the tunnel.
func (t *through) Close(error) { t.cancel() }

// RegisterReach has a server of replicas reach into sandboxes for them.
func RegisterReach(server grpc.ServiceRegistrar, opener reach.Opener) {
	federationv1.RegisterReplicasServer(server, &reaching{opener: opener})
}

type reaching struct {
	federationv1.UnimplementedReplicasServer
	opener reach.Opener
}

var errNoCall = problem.New(problem.Invalid, "the first frame says into which sandbox to reach")

// Reach implements federationv1.ReplicasServer.
func (r *reaching) Reach(stream TunnelStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetCall() == nil {
		return errNoCall.GRPCStatus().Err()
	}
	sandbox, err := r.opener.Open(stream.Context(), first.GetCall().GetSandboxId(), first.GetCall())
	if err != nil {
		return problem.FromError(err).GRPCStatus().Err()
	}
	if err := stream.SendHeader(nil); err != nil {
		sandbox.Close(err)
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	caller := &TunnelCaller{stream: stream, closeSend: func() error { return nil }, cancel: cancel}
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		_ = reach.Join(caller, sandbox) // the caller was told why
	}()
	select {
	case <-joined:
	case <-ctx.Done(): // the stream ends with its handler, and Join with the stream
	}
	return nil
}
