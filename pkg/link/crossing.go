// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
)

// Crossing is the caller's end of a tunnel to a cluster that is attached to another replica of the hub.
type Crossing struct{ *through }

var errNotOpened = errors.New("the replica did not open the tunnel")

// Cross opens a tunnel to a cluster that is attached to a peer. It calls tell with the token that the cluster needs to open its end; tell
// fails if the cluster refuses. The context bounds only the opening.
func Cross(ctx context.Context, peer federationv1.PeersClient, open *federationv1.PeerTunnel,
	tell func(ctx context.Context, token string) error,
) (*Crossing, error) {
	open.Token = rand.Text()
	streaming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	opening := context.AfterFunc(ctx, cancel)
	stream, err := peer.Tunnel(streaming)
	if err == nil {
		err = stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Open{Open: open}})
	}
	if err != nil {
		cancel()
		return nil, notCrossed(ctx, err)
	}
	if err = cross(ctx, stream, tell); err == nil && !opening() {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &Crossing{newThrough(stream, cancel, peer.AwaitEnd, open.GetToken())}, nil
}

func cross(ctx context.Context, stream openedFrames, tell func(ctx context.Context, token string) error) error {
	frame, err := stream.Recv()
	if err != nil {
		return notCrossed(ctx, err)
	}
	token := frame.GetToken()
	if token == "" {
		return notCrossed(ctx, fmt.Errorf("%w: no token", errNotOpened))
	}
	told, opened := make(chan error, 1), make(chan error, 1)
	go func() { told <- tell(context.WithoutCancel(ctx), token) }() // tell has its own deadline
	go func() {
		frame, err := stream.Recv()
		if err == nil && !frame.GetOpened() {
			err = errNotOpened
		}
		opened <- err
	}()
	for {
		select {
		case err := <-opened: // may come before tell returns, which is not waited for
			if err != nil {
				return notCrossed(ctx, err)
			}
			return nil
		case err := <-told:
			if err != nil {
				return err
			}
			told = nil
		}
	}
}

// notCrossed returns the peer's error, or Unavailable if the peer returned none.
func notCrossed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p := problem.FromError(err); p.Reason != problem.Internal && p.Reason != problem.Unimplemented {
		return p
	}
	return problem.New(problem.Unavailable, "the replica to which the cluster is attached did not respond: %w", err).
		WithRetryAfter(time.Second)
}
