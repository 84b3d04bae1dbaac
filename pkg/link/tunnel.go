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
	// tunnelWindow bounds what one end sends on a stream before the other reads it (I10). It is fixed; because gRPC would let it
	// grow to 16 MiB for each of a thousand.
	tunnelWindow = 256 << 10
	// connWindow is the window of all streams of a connection together. It is returned as bytes arrive, read or not.
	connWindow = 4 << 20
	// tunnelHurry is how long sending the last message may take.
	tunnelHurry = 2 * time.Second
)

// errTunnelOver is returned once the other end has ended the stream.
var errTunnelOver = errors.New("the tunnel is over")

var errLargeMessage = fmt.Errorf("a message of more than %d bytes", reach.MaxMessage)

// errTunnelBroke is returned when the stream broke without an end from the other side.
func errTunnelBroke(err error) error {
	return problem.New(problem.Unavailable, "the tunnel broke: %w", err).WithRetryAfter(time.Second)
}

// Tunnels opens tunnels to a hub, on a connection of their own: whatever they carry, the stream of reports and dispatches does
// not queue behind it. The first tunnel dials it.
type Tunnels struct {
	dial     Dial
	attached federationv1.LinkClient
	ctx      context.Context
	end      context.CancelFunc

	mu   sync.Mutex
	conn *grpc.ClientConn
}

// NewTunnels returns tunnels for as long as a connection is used for a stream. Of several replicas they go to the stream's.
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

// Open opens the tunnel of a token. The context bounds only the opening.
func (t *Tunnels) Open(ctx context.Context, token string) (*TunnelCaller, error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	caller, err := t.open(ctx, client, token)
	if status.Code(err) == codes.NotFound {
		// If a name resolves to several hubs, the connection may reach another one than the stream's.
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

// openedFrames is a tunnel's stream at the end that opened it.
type openedFrames = grpc.BidiStreamingClient[federationv1.TunnelFrame, federationv1.TunnelFrame]

// openFrames opens a tunnel's stream, which lasts within a context until cancel, and sends its first frame. ctx bounds only the
// opening. The other end accepts the tunnel with its headers; without headers the stream has ended, and the error has the reason.
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

// frames is a tunnel's stream, whichever end opened it.
type frames interface {
	Send(frame *federationv1.TunnelFrame) error
	Recv() (*federationv1.TunnelFrame, error)
	Context() context.Context
}

// TunnelCaller is a worker's end of a tunnel: the other end is a caller of the hub, or of another replica.
type TunnelCaller struct {
	stream    frames
	closeSend func() error
	cancel    context.CancelFunc // ends the stream
}

// NewTunnelCaller returns the end of a stream that another replica has opened. cancel ends the stream.
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

// Feed sends the changes that run sends, until the other end ends the tunnel or run returns, with the reason.
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

// Close ends the tunnel: at once, or with a reason when the hub has received the reason.
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

// Cut is closed when the tunnel is over.
func (c *TunnelCaller) Cut() <-chan struct{} { return c.stream.Context().Done() }

// Hurry ends the tunnel soon, even if it is blocked.
func (c *TunnelCaller) Hurry() { time.AfterFunc(tunnelHurry, c.cancel) }

// TunnelStream is the hub's side of a tunnel's stream.
type TunnelStream = grpc.BidiStreamingServer[federationv1.TunnelFrame, federationv1.TunnelFrame]

// Tunnel is the end of a tunnel at a hub, or at a replica that does not lead: the other end is a sandbox.
type Tunnel struct {
	stream frames
	failed atomic.Pointer[error] // the reason that the other end gave
	closed chan struct{}
	once   sync.Once
	reason error
}

// NewTunnel returns the end of a stream whose token was read.
func NewTunnel(stream TunnelStream) *Tunnel {
	return &Tunnel{stream: stream, closed: make(chan struct{})}
}

// Serve returns when the tunnel has ended, with the result for the stream's handler.
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

// failure returns the reason for which a worker has ended a tunnel.
func failure(e *federationv1.Error) error {
	return problem.FromStatus(status.FromProto(&spb.Status{Code: e.GetCode(), Message: e.GetMessage(), Details: e.GetDetails()}), nil)
}

// Next returns the next changes that the worker sends by TunnelCaller.Feed.
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

// Send sends a message to the sandbox. Its error is the reason for which the other end has ended the tunnel, if Recv has returned one;
// because a caller that sends and receives may use either error.
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

// Cut is closed when the worker has ended the tunnel, or has gone.
func (t *Tunnel) Cut() <-chan struct{} { return t.stream.Context().Done() }
