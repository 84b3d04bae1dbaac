// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/lru"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/attach"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/tally"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/watch"
)

const (
	helloTimeout = 10 * time.Second
	// openTimeout bounds the opening of a tunnel. The worker's own bounds are shorter.
	openTimeout = 30 * time.Second
	// maxTexts bounds each text of a peer about the holder of a tunnel.
	maxTexts = 1024
	// maxGranted bounds the claims without a key that are remembered in case their response is lost. The oldest are dropped first.
	maxGranted = 32_768
)

// server implements the calls of peers.
type server struct {
	federationv1.UnimplementedPeersServer
	service *Service
	relays  *tally.Tally[string]
	under   link.Conversations
	granted *lru.Cache // of grant, by callID
	lost    *lru.Cache // of callID
}

// callID names a dispatch of a peer.
type callID struct {
	run    string
	number uint64
}

// grant is a sandbox that a claim without a key got.
type grant struct{ cluster, sandbox string }

func (s *server) init(of *Service) {
	s.service = of
	s.relays = tally.New[string](maxPeers)
	s.granted, s.lost = lru.New(maxGranted), lru.New(maxGranted)
}

// Relay implements federationv1.PeersServer.
func (s *server) Relay(stream grpc.BidiStreamingServer[federationv1.RelayRequest, federationv1.RelayFrame]) error {
	if !s.relays.Enter("") {
		return status.Errorf(codes.ResourceExhausted, "this replica relays to %d others already", maxPeers)
	}
	defer s.relays.Leave("")
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	hello, err := s.hello(stream)
	if err != nil {
		return err
	}
	if err := stream.Send(&federationv1.RelayFrame{Body: &federationv1.RelayFrame_Hello{Hello: s.service.helloProto()}}); err != nil {
		return err
	}
	relay := s.service.opts.Fleet.NewRelay()
	defer relay.Close()
	go func() { // ends with the stream
		for {
			request, err := stream.Recv()
			if err != nil {
				cancel(err)
				return
			}
			switch body := request.GetBody().(type) {
			case *federationv1.RelayRequest_Complete:
				relay.Complete(body.Complete.GetClusterId())
			case *federationv1.RelayRequest_Lost:
				s.releaseUndelivered(hello.GetRun(), body.Lost.GetDispatches())
				s.handleLost(body.Lost)
			}
		}
	}()
	for {
		frame, err := relay.Next(ctx)
		if err != nil {
			return status.Convert(err).Err()
		}
		s.service.metrics.frame(frame, "sent")
		if err := stream.Send(frame); err != nil {
			return err
		}
	}
}

var errLateHello = status.Error(codes.DeadlineExceeded, "the replica did not introduce itself in time")

// hello reads the first message.
func (s *server) hello(stream grpc.BidiStreamingServer[federationv1.RelayRequest, federationv1.RelayFrame]) (
	*federationv1.PeerHello, error,
) {
	request, err := link.Receive(stream.Recv, s.service.opts.Clock, helloTimeout, errLateHello)
	if err != nil {
		return nil, err
	}
	hello := request.GetHello()
	if err := checkHello(hello); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if hello.GetName() == s.service.opts.Name {
		return nil, status.Errorf(codes.FailedPrecondition, "this replica is called %s as well; give each its own --replica-name",
			hello.GetName())
	}
	return hello, nil
}

// releaseUndelivered releases the sandboxes of claims whose responses were lost. If a response has not arrived yet, its sandbox is released
// when it does.
func (s *server) releaseUndelivered(run string, numbers []uint64) {
	for _, number := range numbers[:min(len(numbers), lostBatch)] {
		id := callID{run, number}
		s.lost.Add(id, nil)
		s.settle(id)
	}
}

// settle releases the sandbox of a dispatch that was both granted and lost.
func (s *server) settle(id callID) {
	if _, lost := s.lost.Get(id); !lost {
		return
	}
	if g, granted := s.granted.Get(id); granted {
		s.granted.Remove(id)
		s.lost.Remove(id)
		s.service.opts.Workers.ReleaseUndelivered(g.(grant).cluster, g.(grant).sandbox)
	}
}

// Dispatch implements federationv1.PeersServer.
func (s *server) Dispatch(in *federationv1.PeerDispatch, stream grpc.ServerStreamingServer[federationv1.PeerOutcome]) error {
	cluster, d := in.GetClusterId(), in.GetDispatch()
	if d == nil || !validate.IsClusterID(cluster) || len(in.GetRun()) > maxName {
		return status.Error(codes.InvalidArgument, "cluster_id, dispatch: a cluster's name and a call are needed")
	}
	withoutKey := calls.Unkeyed(d)
	if err := stream.Send(&federationv1.PeerOutcome{Outcome: &federationv1.PeerOutcome_Taken{Taken: true}}); err != nil {
		return err
	}
	answer, err := s.service.opts.Workers.Dispatch(link.WithTraceContext(stream.Context(), d.GetTrace()), cluster, d)
	if id := answer.GetSandbox().GetId(); withoutKey && id != "" {
		call := callID{in.GetRun(), in.GetNumber()}
		s.granted.Add(call, grant{cluster, id}) // before the response leaves: it may be lost
		s.settle(call)
	}
	return stream.Send(peerOutcome(answer, err))
}

func peerOutcome(answer *federationv1.Answer, err error) *federationv1.PeerOutcome {
	switch {
	case err == nil:
		return &federationv1.PeerOutcome{Outcome: &federationv1.PeerOutcome_Answer{Answer: answer}}
	case errors.Is(err, attach.ErrNotConnected):
		return &federationv1.PeerOutcome{Outcome: &federationv1.PeerOutcome_NotSent{NotSent: err.Error()}}
	default:
		return &federationv1.PeerOutcome{Outcome: &federationv1.PeerOutcome_Unclear{Unclear: err.Error()}}
	}
}

var (
	errNoTunnel = problem.New(problem.Invalid, "the first frame says which cluster should open a tunnel")
	errInUse    = problem.New(problem.Invalid, "the token of the tunnel is empty, or in use")
	errMoved    = problem.New(problem.Unavailable, "the cluster has attached to another replica").WithRetryAfter(time.Second)
)

// Tunnel implements federationv1.PeersServer.
func (s *server) Tunnel(stream link.TunnelStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	open := first.GetOpen()
	if !validate.IsClusterID(open.GetClusterId()) || len(open.GetAccount()) > maxTexts || len(open.GetSandbox()) > maxTexts ||
		len(open.GetToken()) > maxName {
		return errNoTunnel.GRPCStatus().Err()
	}
	end, ok := s.under.Begin(open.GetToken())
	if !ok {
		return errInUse.GRPCStatus().Err()
	}
	defer end()
	ctx, cancel := context.WithTimeout(stream.Context(), openTimeout)
	defer cancel()
	// This is decided before a token is issued, which is valid only here. The caller's replica then follows the cluster.
	s.service.opts.Workers.Settle(ctx, open.GetClusterId())
	if elsewhere, _ := s.service.opts.Fleet.Where(open.GetClusterId()); elsewhere != "" {
		return errMoved.GRPCStatus().Err()
	}
	// The caller passes the token to the cluster, and ends the stream if that fails.
	tell := func(_ context.Context, token string) error {
		return stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Token{Token: token}})
	}
	if open.GetFeed() {
		changes, err := s.service.opts.Workers.OpenFeed(ctx, open.GetClusterId(), tell)
		if err != nil {
			return problem.FromError(err).GRPCStatus().Err()
		}
		return carry(stream, changes)
	}
	tunnel, err := s.service.opts.Workers.OpenTunnel(ctx, open.GetClusterId(), reach.Holder{
		Account: open.GetAccount(), Sandbox: open.GetSandbox(),
	}, tell)
	if err != nil {
		return problem.FromError(err).GRPCStatus().Err()
	}
	if err := accept(stream); err != nil {
		tunnel.Close(err)
		return err
	}
	link.JoinStream(stream, tunnel)
	return nil
}

func accept(stream link.TunnelStream) error {
	return stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Opened{Opened: true}})
}

// carry sends the changes of a feed until either end closes it.
func carry(stream link.TunnelStream, changes watch.Feed) error {
	ended := context.AfterFunc(stream.Context(), changes.Close)
	defer changes.Close()
	defer ended()
	err := accept(stream)
	for err == nil {
		var next *federationv1.SandboxChanges
		if next, err = changes.Next(); err == nil {
			err = stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Changes{Changes: next}})
		}
	}
	return stream.Send(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Failed{Failed: calls.ErrorProto(problem.FromError(err))}})
}

// AwaitEnd implements federationv1.PeersServer.
func (s *server) AwaitEnd(in *federationv1.AwaitEndRequest, stream grpc.ServerStreamingServer[federationv1.AwaitEndResponse]) error {
	return s.under.Await(in, stream)
}
