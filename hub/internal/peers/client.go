// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/attach"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// takenTimeout bounds the time until a peer confirms a claim without a key. It is as long as for a worker.
	takenTimeout = time.Second
	// maxLost bounds the lost dispatches that must still be sent to a peer. The oldest are dropped first.
	maxLost = 32_768
	// lostBatch is the maximum number of them in one message.
	lostBatch = 1024
	// maxName bounds the name of a replica, and its other texts.
	maxName = 253
)

// The pause after a relay that broke: full jitter, doubled up to a bound. gRPC's own pauses between dials come on top.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// peer is the connection to another replica.
type peer struct {
	service *Service
	name    string
	address string
	member  atomic.Pointer[Peer]
	hello   atomic.Pointer[federationv1.PeerHello] // the last one
	conn    *grpc.ClientConn
	client  federationv1.PeersClient
	log     logr.Logger
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	joined bool            // its relay is running
	left   time.Time       // when the relay ended, or the peer became a member
	asks   map[string]bool // clusters whose complete report must be requested
	losses losses          // that must still be sent to it
	named  []named         // losses that were sent to it within namedFor
	wake   chan struct{}   // one token
}

// dial is called with the service's lock held.
func (s *Service) dial(ctx context.Context, m Peer) (*peer, error) {
	conn, err := link.DialHubPeer(m.Address, s.opts.Credentials,
		append([]grpc.DialOption{grpc.WithStatsHandler(traffic{s.metrics})}, s.opts.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	p := &peer{
		service: s, name: m.Name, address: m.Address, conn: conn, client: federationv1.NewPeersClient(conn),
		log: s.opts.Log.WithValues("replica", m.Name), left: s.opts.Clock.Now(), asks: map[string]bool{}, wake: make(chan struct{}, 1),
	}
	p.losses = s.open
	p.member.Store(&m)
	ctx, p.end = context.WithCancel(ctx)
	p.running.Go(func() { p.keep(ctx) })
	return p, nil
}

func (p *peer) close() {
	p.end()
	p.running.Wait()
	_ = p.conn.Close()
}

func (p *peer) connected() bool {
	_, ok := p.lost()
	return ok && p.conn.GetState() == connectivity.Ready
}

// lost returns the time since which the peer's relay is missing, and whether it is running.
func (p *peer) lost() (since time.Time, there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left, p.joined
}

// keep runs the relay, and restarts it after a pause, until ctx ends.
func (p *peer) keep(ctx context.Context) {
	for pause := minPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		began := p.service.opts.Clock.Now()
		err := p.relay(ctx)
		if ctx.Err() != nil {
			return
		}
		if p.service.opts.Clock.Since(began) > maxPause {
			pause = minPause
		}
		p.log.Info("No relay from a replica, trying again", "address", p.address, "reason", err.Error())
		_ = wallclock.Sleep(ctx, p.service.opts.Clock, time.Duration(rand.Int64N(int64(pause))))
	}
}

type relayStream = grpc.BidiStreamingClient[federationv1.RelayRequest, federationv1.RelayFrame]

// relay receives the frames about the peer's clusters until the stream breaks.
func (p *peer) relay(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.client.Relay(ctx, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("opening the relay: %w", err)
	}
	if err := p.introduce(stream); err != nil {
		return err
	}
	inlet := p.service.opts.Fleet.NewInlet(p.name)
	defer inlet.Close()
	p.join(true)
	defer p.join(false)
	var sender sync.WaitGroup
	defer sender.Wait()
	defer cancel()
	sender.Go(func() { p.send(ctx, stream) })
	for {
		frame, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receiving the relay: %w", err)
		}
		p.service.metrics.frame(frame, "received")
		cluster, ask, err := inlet.Take(frame)
		switch {
		case errors.Is(err, fleet.ErrRelay):
			p.log.Error(err, "Dropped a frame of a replica")
		case ask:
			p.ask(cluster)
		}
	}
}

var errHello = errors.New("the replica's hello is not valid")

// introduce exchanges the hellos. The peer must be the member that was dialled, because hints may be wrong.
func (p *peer) introduce(stream relayStream) error {
	if err := stream.Send(&federationv1.RelayRequest{Body: &federationv1.RelayRequest_Hello{Hello: p.service.helloProto()}}); err != nil {
		_, err = stream.Recv()
		return fmt.Errorf("introducing this replica: %w", err)
	}
	frame, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("reading the replica's hello: %w", err)
	}
	hello := frame.GetHello()
	if err := checkHello(hello); err != nil {
		return err
	}
	if hello.GetName() != p.name {
		return fmt.Errorf("%w: name %q, want %q", errHello, hello.GetName(), p.name)
	}
	if before := p.hello.Swap(hello); before != nil && before.GetRun() != hello.GetRun() {
		p.mu.Lock()
		p.losses.dispatches = nil // the process that granted them has ended
		for i := range p.named {
			p.named[i].dispatches = nil
		}
		p.mu.Unlock()
	}
	return nil
}

func (s *Service) helloProto() *federationv1.PeerHello {
	return &federationv1.PeerHello{
		Protocol: protocolVersion, Name: s.opts.Name, Version: s.opts.Version, Run: s.run, Since: timestamppb.New(s.since),
	}
}

func checkHello(h *federationv1.PeerHello) error {
	if h == nil {
		return fmt.Errorf("%w: it is missing", errHello)
	}
	if h.GetProtocol() != protocolVersion {
		return fmt.Errorf("%w: protocol %d, want %d", errHello, h.GetProtocol(), protocolVersion)
	}
	if h.GetName() == "" || h.GetRun() == "" {
		return fmt.Errorf("%w: name and run must not be empty", errHello)
	}
	for _, text := range []string{h.GetName(), h.GetVersion(), h.GetRun()} {
		if len(text) > maxName {
			return fmt.Errorf("%w: a text of %d bytes, want at most %d", errHello, len(text), maxName)
		}
	}
	return nil
}

func (p *peer) join(joined bool) {
	p.mu.Lock()
	p.joined, p.left = joined, p.service.opts.Clock.Now()
	clear(p.asks)
	if joined {
		p.requeueLosses()
	}
	p.mu.Unlock()
	if joined {
		p.log.Info("Connected to a replica", "address", p.address, "version", p.hello.Load().GetVersion())
		p.signal()
	}
}

func (p *peer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *peer) ask(cluster string) {
	p.mu.Lock()
	p.asks[cluster] = true
	p.mu.Unlock()
	p.signal()
}

// send sends requests until ctx ends. The next relay repeats the losses that were sent within namedFor.
func (p *peer) send(ctx context.Context, stream relayStream) {
	for {
		p.mu.Lock()
		asks := p.asks
		p.asks = map[string]bool{}
		lost := p.losses.batch()
		p.mu.Unlock()
		for cluster := range asks {
			if stream.Send(&federationv1.RelayRequest{Body: &federationv1.RelayRequest_Complete{
				Complete: &federationv1.RelayComplete{ClusterId: cluster},
			}}) != nil {
				return
			}
		}
		if !lost.empty() {
			if stream.Send(&federationv1.RelayRequest{Body: &federationv1.RelayRequest_Lost{
				Lost: &federationv1.RelayLost{Dispatches: lost.dispatches, Calls: lost.calls, SandboxIds: lost.sandboxes},
			}}) != nil {
				return
			}
			p.markSent(lost)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
	}
}

// dispatch sends a call to a cluster that is attached to the peer.
func (p *peer) dispatch(ctx context.Context, cluster string, d *federationv1.Dispatch) (answer *federationv1.Answer, err error) {
	began := p.service.opts.Clock.Now()
	defer func() { p.service.metrics.dispatched(p.service.opts.Clock.Since(began), err) }()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", attach.ErrNotConnected, err)
	}
	number := p.service.numbers.Add(1)
	d.Trace = link.TraceContext(ctx)
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.client.Dispatch(calling, &federationv1.PeerDispatch{
		Run: p.service.run, Number: number, ClusterId: cluster, Dispatch: d,
	})
	if err == nil {
		answer, err = p.await(stream, func() {
			p.service.opts.Fleet.NoReceipt(cluster, p.name)
			if calls.Unkeyed(d) { // its caller may try another cluster
				cancel()
			}
		})
	}
	if err == nil || errors.Is(err, attach.ErrNotConnected) || errors.Is(err, attach.ErrUnclear) {
		return answer, err
	}
	if calls.Unkeyed(d) {
		p.service.metrics.lost.Inc()
		p.queueLosses(losses{dispatches: []uint64{number}})
	}
	if left := callerLeft(ctx, err); left != nil {
		return nil, fmt.Errorf("%w: %w", attach.ErrUnclear, left)
	}
	return nil, fmt.Errorf("%w: replica %s, to which cluster %s is attached: %w", attach.ErrUnclear, p.name, cluster, err)
}

// callerLeft returns why the caller no longer waits, or nil if it does. The peer may report the deadline a moment before the context does.
func callerLeft(ctx context.Context, err error) error {
	if _, limited := ctx.Deadline(); limited && status.Code(err) == codes.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// await reads the outcome. It calls silent if the peer does not confirm the call in time. It returns an error of the stream unchanged.
func (p *peer) await(stream grpc.ServerStreamingClient[federationv1.PeerOutcome], silent func()) (*federationv1.Answer, error) {
	timer := p.service.opts.Clock.NewTimer(takenTimeout)
	taken, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		defer timer.Stop()
		select {
		case <-timer.C():
			silent()
		case <-taken:
		}
	}()
	out, err := stream.Recv()
	close(taken)
	<-watched
	for err == nil && out.GetTaken() {
		out, err = stream.Recv()
	}
	if err != nil {
		return nil, err
	}
	return read(out)
}

var errNoOutcome = errors.New("the replica returned no outcome")

func read(out *federationv1.PeerOutcome) (*federationv1.Answer, error) {
	switch body := out.GetOutcome().(type) {
	case *federationv1.PeerOutcome_Answer:
		return body.Answer, nil
	case *federationv1.PeerOutcome_NotSent:
		return nil, fmt.Errorf("%w: %s", attach.ErrNotConnected, body.NotSent)
	case *federationv1.PeerOutcome_Unclear:
		return nil, fmt.Errorf("%w: %s", attach.ErrUnclear, body.Unclear)
	default:
		return nil, errNoOutcome
	}
}
