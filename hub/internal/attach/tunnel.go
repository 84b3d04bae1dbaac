// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/watch"
)

const (
	// tunnelTimeout bounds the time until a worker names the token of a tunnel.
	tunnelTimeout = 10 * time.Second
	// maxUnnamed bounds the streams of a cluster that have named no token yet (I14). A worker names the token at once.
	maxUnnamed = 1024
)

// tunnels holds the awaited tunnels by token, and counts the tunnels of each cluster, including those that are being opened.
type tunnels struct {
	shares reach.Shares

	mu      sync.Mutex
	awaited map[string]*awaited
	seats   map[string]*reach.Seats     // by cluster
	open    map[*link.Tunnel]fleet.Peer // the peer that opened the tunnel
}

func newTunnels(shares reach.Shares) *tunnels {
	return &tunnels{shares: shares, awaited: map[string]*awaited{}, seats: map[string]*reach.Seats{}, open: map[*link.Tunnel]fleet.Peer{}}
}

// serve runs a tunnel until it ends. It registers the tunnel before it checks for revocation, so that no revocation is missed.
func (t *tunnels) serve(tunnel *link.Tunnel, by fleet.Peer, revoked func(fleet.Peer) bool) error {
	t.mu.Lock()
	t.open[tunnel] = by
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.open, tunnel)
	}()
	if revoked(by) {
		tunnel.Close(errRevoked)
	}
	return tunnel.Serve()
}

// endRevoked ends the tunnels whose certificate is revoked.
func (t *tunnels) endRevoked(revoked func(fleet.Peer) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for tunnel, by := range t.open {
		if revoked(by) {
			tunnel.Close(errRevoked)
		}
	}
}

// awaited is a tunnel that a cluster was asked to open.
type awaited struct {
	cluster string
	arrived chan *link.Tunnel // holds one
	dropped bool              // guarded by tunnels.mu
}

// await returns a token that the cluster's worker must present. The token is valid once, and for that cluster only. The tunnel counts
// against its holder until leave is called.
func (t *tunnels) await(cluster string, holder reach.Holder) (token string, a *awaited, leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seats := t.seats[cluster]
	if seats == nil {
		seats = &reach.Seats{Shares: t.shares}
	}
	taken, err := seats.Take(holder)
	if err != nil {
		return "", nil, nil, err
	}
	t.seats[cluster] = seats
	token, a = t.expect(cluster)
	return token, a, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if taken(); seats.Taken() == 0 && t.seats[cluster] == seats {
			delete(t.seats, cluster)
		}
	}, nil
}

// expect returns a new token. Called with the lock held.
func (t *tunnels) expect(cluster string) (token string, a *awaited) {
	token, a = rand.Text(), &awaited{cluster: cluster, arrived: make(chan *link.Tunnel, 1)}
	t.awaited[token] = a
	return token, a
}

// expectFeed is await for a tunnel of the hub itself, which counts against no holder.
func (t *tunnels) expectFeed(cluster string) (token string, a *awaited) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.expect(cluster)
}

// drop stops waiting, and closes a tunnel that no caller took.
func (t *tunnels) drop(token string, a *awaited) {
	t.mu.Lock()
	delete(t.awaited, token)
	a.dropped = true
	t.mu.Unlock()
	select {
	case late := <-a.arrived:
		late.Close(nil)
	default:
	}
}

// arrive passes a tunnel to the caller that awaits it. It calls accept first: the caller's first message must not overtake what accept
// sends.
func (t *tunnels) arrive(token, cluster string, tunnel *link.Tunnel, accept func() error) error {
	t.mu.Lock()
	a := t.awaited[token]
	if a == nil || a.cluster != cluster {
		t.mu.Unlock()
		return errNotAwaited
	}
	delete(t.awaited, token)
	t.mu.Unlock()
	if err := accept(); err != nil {
		return err // the worker refuses the dispatch, or is gone
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.dropped {
		tunnel.Close(nil)
		return nil
	}
	a.arrived <- tunnel
	return nil
}

// OpenTunnel makes a cluster's worker open a tunnel. tell passes the token to the worker, and fails if the worker refuses. The context
// bounds the opening. The caller closes the tunnel. A holder with its full share of the cluster's tunnels gets an error (I14).
func (s *Server) OpenTunnel(
	ctx context.Context, cluster string, holder reach.Holder, tell func(ctx context.Context, token string) error,
) (reach.Tunnel, error) {
	token, a, leave, err := s.tunnels.await(cluster, holder)
	if err != nil {
		return nil, err
	}
	tunnel, err := s.openTunnel(ctx, token, a, tell)
	if err != nil {
		leave()
		return nil, err
	}
	return s.carried.Share(&openedTunnel{Tunnel: tunnel, over: leave}, holder), nil
}

// OpenFeed makes a cluster's worker open a tunnel over which it sends changes of sandboxes. The copies of package watch bound the number of
// feeds: each copy has one feed of a cluster.
func (s *Server) OpenFeed(
	ctx context.Context, cluster string, tell func(ctx context.Context, token string) error,
) (watch.Feed, error) {
	token, a := s.tunnels.expectFeed(cluster)
	tunnel, err := s.openTunnel(ctx, token, a, tell)
	if err != nil {
		return nil, err
	}
	return feed{tunnel}, nil
}

// feed is a tunnel that carries changes of sandboxes.
type feed struct{ *link.Tunnel }

// Close implements watch.Feed.
func (f feed) Close() { f.Tunnel.Close(nil) }

// openTunnel waits until the worker has opened a tunnel.
func (s *Server) openTunnel(
	ctx context.Context, token string, a *awaited, tell func(ctx context.Context, token string) error,
) (*link.Tunnel, error) {
	defer s.tunnels.drop(token, a)
	told := make(chan error, 1)
	go func() { told <- tell(context.WithoutCancel(ctx), token) }() // it has a deadline of its own
	for {
		var err error
		select {
		case tunnel := <-a.arrived: // may come before the response, which is then not awaited
			return tunnel, nil
		case err = <-told:
			told = nil
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
	}
}

// openedTunnel is a tunnel that counts against its holder until it is closed.
type openedTunnel struct {
	*link.Tunnel
	over func()
}

// Close ends the tunnel.
func (t *openedTunnel) Close(reason error) {
	t.over()
	t.Tunnel.Close(reason)
}

var (
	errNoToken    = status.Error(codes.DeadlineExceeded, "the worker did not name a token in time")
	errNotAwaited = status.Error(codes.NotFound, "no such tunnel is awaited")
	errRevoked    = problem.New(problem.Unavailable, "the cluster's certificate was revoked")
)

// Tunnel serves a tunnel that a worker opens. The certificate names the cluster, and the token must belong to that cluster (I12).
func (s *Server) Tunnel(stream link.TunnelStream) error {
	cluster, err := link.PeerCluster(stream.Context())
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	peer := peerOf(stream.Context(), cluster)
	if s.opts.Fleet.Refusal(peer) != fleet.None { // refused at once, so that it takes no place of the cluster that has the name now
		refused := link.NewTunnel(stream)
		refused.Close(errRevoked)
		return refused.Serve()
	}
	if !s.unnamed.Enter(cluster) {
		return status.Errorf(codes.ResourceExhausted, "%d tunnels of cluster %s have named no token yet", maxUnnamed, cluster)
	}
	frame, err := link.Receive(stream.Recv, s.opts.Clock, tunnelTimeout, errNoToken)
	s.unnamed.Leave(cluster)
	if err != nil {
		return err
	}
	tunnel := link.NewTunnel(stream)
	accept := func() error { return stream.SendHeader(nil) }
	if err := s.tunnels.arrive(frame.GetToken(), cluster, tunnel, accept); err != nil {
		return err
	}
	return s.tunnels.serve(tunnel, peer, s.opts.Fleet.Refuses)
}
