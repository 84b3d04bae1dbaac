// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

const (
	// tunnelWindow bounds what one end sends on a stream before the other reads it (I10). It is fixed, because gRPC would let it grow to 16
	// MiB for each of a thousand streams.
	tunnelWindow = 256 << 10
	// connWindow is the shared window of all streams of a connection. Bytes free it as they arrive, even if they are not read yet.
	connWindow = 4 << 20
	// tunnelHurry is how long the send of the last message may take.
	tunnelHurry = 2 * time.Second
)

// errTunnelOver is returned after the other end has closed the stream.
var errTunnelOver = errors.New("the tunnel is over")

var errLargeMessage = fmt.Errorf("a message of more than %d bytes", reach.MaxMessage)

// errTunnelBroke is returned if the stream broke before the other end closed it.
func errTunnelBroke(err error) error {
	return problem.New(problem.Unavailable, "the tunnel broke: %w", err).WithRetryAfter(time.Second)
}

// Tunnels opens tunnels to a hub. They use their own connection, so that reports and dispatches never queue behind the data of a tunnel.
// The first tunnel dials it.
type Tunnels struct {
	dial     Dial
	attached federationv1.LinkClient
	ctx      context.Context
	end      context.CancelFunc

	mu   sync.Mutex
	conn *grpc.ClientConn
}

// NewTunnels returns the tunnels that belong to an attached stream. They connect to the same hub replica as the stream.
func (d Dial) NewTunnels(attached federationv1.LinkClient) *Tunnels {
	if r, ok := attached.(replica); ok {
		d = r.dial
	}
	t := &Tunnels{dial: d, attached: attached}
	t.ctx, t.end = context.WithCancel(context.Background())
	return t
}

// Close ends all tunnels.
func (t *Tunnels) Close() error {
	t.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		return nil
	}
	return t.conn.Close()
}

func (t *Tunnels) client() (federationv1.LinkClient, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return nil, errTunnelOver
	}
	if t.conn == nil {
		conn, err := t.dial.client(ignore{}, grpc.WithInitialWindowSize(tunnelWindow), grpc.WithInitialConnWindowSize(connWindow))
		if err != nil {
			return nil, err
		}
		t.conn = conn
	}
	return federationv1.NewLinkClient(t.conn), nil
}

// Open opens the tunnel with the given token. The context bounds only the opening.
func (t *Tunnels) Open(ctx context.Context, token string) (*TunnelCaller, error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	caller, err := t.open(ctx, client, token)
	if status.Code(err) == codes.NotFound {
		// If a name resolves to several hubs, the tunnel connection may have reached another one than the stream.
		caller, err = t.open(ctx, t.attached, token)
	}
	return caller, err
}

func (t *Tunnels) open(ctx context.Context, hub federationv1.LinkClient, token string) (*TunnelCaller, error) {
	stream, cancel, err := openFrames(ctx, t.ctx, hub.Tunnel, &federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Token{Token: token}})
	if err != nil {
		return nil, fmt.Errorf("opening a tunnel: %w", err)
	}
	return &TunnelCaller{stream: stream, closeSend: stream.CloseSend, cancel: cancel}, nil
}

// openedFrames is a tunnel's stream at the end that opens it.
type openedFrames = grpc.BidiStreamingClient[federationv1.TunnelFrame, federationv1.TunnelFrame]

// openFrames opens a tunnel's stream and sends its first frame. The stream lasts until within ends or cancel is called; ctx bounds only the
// opening. The other end accepts the tunnel by sending headers. If there are none, the stream has ended and the error is the reason.
func openFrames(
	ctx, within context.Context, open func(context.Context, ...grpc.CallOption) (openedFrames, error), first *federationv1.TunnelFrame,
) (stream openedFrames, cancel context.CancelFunc, err error) {
	streaming, cancel := context.WithCancel(within)
	opened := context.AfterFunc(ctx, cancel)
	stream, err = open(streaming)
	if err == nil {
		err = stream.Send(first)
	}
	if err == nil || errors.Is(err, io.EOF) {
		var taken metadata.MD
		if taken, err = stream.Header(); err == nil && taken == nil {
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
		return nil, nil, err
	}
	return stream, cancel, nil
}

// frames is a tunnel's stream at either end.
type frames interface {
	Send(frame *federationv1.TunnelFrame) error
	Recv() (*federationv1.TunnelFrame, error)
	Context() context.Context
}

// TunnelCaller is the worker's end of a tunnel. At the other end is a caller, at the hub or at another replica.
type TunnelCaller struct {
	stream    frames
	closeSend func() error
	cancel    context.CancelFunc // ends the stream
}

// NewTunnelCaller returns the accepting end of a stream that another replica opened. cancel ends the stream.
func NewTunnelCaller(stream TunnelStream, cancel context.CancelFunc) *TunnelCaller {
	return &TunnelCaller{stream: stream, closeSend: func() error { return nil }, cancel: cancel}
}

// Recv returns the caller's next message.
func (c *TunnelCaller) Recv() ([]byte, error) {
	for {
		frame, err := c.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errTunnelOver
			}
			return nil, err
		}
		switch body := frame.GetBody().(type) {
		case *federationv1.TunnelFrame_Data:
			if len(body.Data) > reach.MaxMessage {
				return nil, errTunnelBroke(errLargeMessage)
			}
			return body.Data, nil
		case *federationv1.TunnelFrame_End:
			return nil, io.EOF
		}
	}
}

// Send sends a message to the caller.
func (c *TunnelCaller) Send(message []byte) error {
	return c.stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Data{Data: message}})
}

// CloseSend signals the end of messages to the caller.
func (c *TunnelCaller) CloseSend() error {
	return c.stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_End{End: true}})
}

// Feed sends the changes that run produces, until the other end closes the tunnel or run returns. It closes the tunnel with run's error.
func (c *TunnelCaller) Feed(run func(ctx context.Context, send func(*federationv1.SandboxChanges) error) error) {
	ctx, cancel := context.WithCancel(c.stream.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		for {
			if _, err := c.stream.Recv(); err != nil {
				return
			}
		}
	}()
	err := run(ctx, func(changes *federationv1.SandboxChanges) error {
		return c.stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Changes{Changes: changes}})
	})
	if ctx.Err() != nil {
		err = nil
	}
	c.Close(err)
	<-ended
}

// Close closes the tunnel. Without a reason it does so immediately; otherwise it sends the reason first, for at most tunnelHurry.
func (c *TunnelCaller) Close(reason error) {
	if reason == nil {
		c.cancel()
		return
	}
	c.Hurry()
	st := problem.FromError(reason).GRPCStatus().Proto()
	_ = c.stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Failed{Failed: &federationv1.Error{
		Code: st.GetCode(), Message: st.GetMessage(), Details: st.GetDetails(),
	}}})
	_ = c.closeSend()
}

// Cut returns a channel that is closed when the tunnel has ended.
func (c *TunnelCaller) Cut() <-chan struct{} { return c.stream.Context().Done() }

// Hurry cancels the stream after tunnelHurry, even if it is blocked.
func (c *TunnelCaller) Hurry() { time.AfterFunc(tunnelHurry, c.cancel) }

// TunnelStream is the hub's side of a tunnel's stream.
type TunnelStream = grpc.BidiStreamingServer[federationv1.TunnelFrame, federationv1.TunnelFrame]

// Tunnel is the end of a tunnel at a hub, or at a replica that is not the leader. At the other end is a sandbox.
type Tunnel struct {
	stream frames
	failed atomic.Pointer[error] // the reason that the other end sent
	closed chan struct{}
	once   sync.Once
	reason error
}

// NewTunnel returns a tunnel for a stream whose token was already read.
func NewTunnel(stream TunnelStream) *Tunnel {
	return &Tunnel{stream: stream, closed: make(chan struct{})}
}

// Serve blocks until the tunnel has ended, and returns the result for the stream's handler.
func (t *Tunnel) Serve() error {
	select {
	case <-t.closed:
		return t.reason
	case <-t.stream.Context().Done():
		return t.stream.Context().Err()
	}
}

// Recv returns the sandbox's next message.
func (t *Tunnel) Recv() ([]byte, error) {
	for {
		frame, err := t.stream.Recv()
		if err != nil {
			return nil, errTunnelBroke(err)
		}
		switch body := frame.GetBody().(type) {
		case *federationv1.TunnelFrame_Data:
			if len(body.Data) > reach.MaxMessage {
				return nil, errTunnelBroke(errLargeMessage)
			}
			return body.Data, nil
		case *federationv1.TunnelFrame_End:
			return nil, io.EOF
		case *federationv1.TunnelFrame_Failed:
			err := failure(body.Failed)
			t.failed.Store(&err)
			return nil, err
		}
	}
}

// failure converts the reason for which a worker closed a tunnel.
func failure(e *federationv1.Error) error {
	return problem.FromStatus(status.FromProto(&spb.Status{Code: e.GetCode(), Message: e.GetMessage(), Details: e.GetDetails()}), nil)
}

// Next returns the next changes that the worker sends with TunnelCaller.Feed.
func (t *Tunnel) Next() (*federationv1.SandboxChanges, error) {
	for {
		frame, err := t.stream.Recv()
		if err != nil {
			return nil, errTunnelBroke(err)
		}
		switch body := frame.GetBody().(type) {
		case *federationv1.TunnelFrame_Changes:
			return body.Changes, nil
		case *federationv1.TunnelFrame_Failed:
			return nil, failure(body.Failed)
		}
	}
}

// Send sends a message to the sandbox. If Recv has already returned the reason for which the other end closed the tunnel, Send fails with
// the same reason, because a caller that sends and receives may report either error.
func (t *Tunnel) Send(message []byte) error {
	err := t.stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Data{Data: message}})
	if err == nil {
		return nil
	}
	if reason := t.failed.Load(); reason != nil {
		return *reason
	}
	return errTunnelBroke(err)
}

// CloseSend signals the end of messages to the sandbox.
func (t *Tunnel) CloseSend() error {
	return t.stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_End{End: true}})
}

// Close ends the tunnel.
func (t *Tunnel) Close(reason error) {
	t.once.Do(func() {
		if reason != nil {
			t.reason = status.Error(codes.Aborted, problem.FromError(reason).Message)
		}
		close(t.closed)
	})
}

// Cut returns a channel that is closed when the worker has closed the tunnel or is gone.
func (t *Tunnel) Cut() <-chan struct{} { return t.stream.Context().Done() }
