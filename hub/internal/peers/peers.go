// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/attach"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/pkg/watch"
)

const (
	protocolVersion = 1
	// maxPeers bounds the number of other replicas.
	maxPeers = 64
	// lookEvery is the interval at which the members are read, in addition to each change.
	lookEvery = 5 * time.Second
	// Unheard is how long a live member may lack a connection before it counts as unreachable.
	Unheard = 15 * time.Second
	// movePatience is how long a tunnel waits for what the replicas tell of a cluster that has left one of them. It looks at every movePause.
	movePatience = 5 * time.Second
	movePause    = 20 * time.Millisecond
)

// Peer is another replica, as package members knows it.
type Peer struct {
	Name    string
	Address string // host:port of its peer port
	Version string
	Load    int // clusters attached to it
}

// Members lists the replicas that are alive. It may be wrong.
type Members interface {
	Peers() []Peer
	// Changed has a token after a change.
	Changed() <-chan struct{}
}

// Options configure a Service. All fields are required except Members and DialOptions. Without Members there are no peers.
type Options struct {
	Name, Version, Address string // of this replica
	Fleet                  *fleet.Fleet
	Workers                *attach.Server
	Credentials            *link.Credentials
	Members                Members
	Clock                  clock.WithTicker
	Log                    logr.Logger
	// DialOptions are additional options for dialling peers.
	DialOptions []grpc.DialOption
}

// Service reaches every cluster: by a stream of this replica, or through the replica to which the cluster is attached.
type Service struct {
	opts    Options
	run     string // of this process
	since   time.Time
	numbers atomic.Uint64 // of dispatches
	metrics *metrics
	server  server

	mu    sync.RWMutex
	peers map[string]*peer
	open  losses // open calls and unreleased sandboxes of ended streams, for later peers
}

// New returns a service without peers.
func New(o Options) *Service {
	s := &Service{opts: o, run: rand.Text(), since: o.Clock.Now(), peers: map[string]*peer{}}
	s.metrics = newMetrics(s)
	s.server.init(s)
	o.Workers.OnLost(s.queueLosses)
	return s
}

// Serve serves peers until ctx ends.
func (s *Service) Serve(ctx context.Context, lis net.Listener) error {
	server := link.NewHubPeerServer(s.opts.Credentials, s.opts.Log)
	federationv1.RegisterPeersServer(server, &s.server)
	stopped := context.AfterFunc(ctx, server.Stop)
	defer stopped()
	return server.Serve(lis)
}

// Run keeps a connection to every member until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	if s.opts.Members == nil {
		return nil
	}
	ticker := s.opts.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	defer s.reconcileConnections(ctx, nil)
	for {
		s.reconcileConnections(ctx, s.opts.Members.Peers())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-s.opts.Members.Changed():
		}
	}
}

// reconcileConnections opens and closes connections, so that there is one to each member.
func (s *Service) reconcileConnections(ctx context.Context, members []Peer) {
	slices.SortFunc(members, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	want := map[string]Peer{}
	for _, m := range members {
		if m.Name != s.opts.Name && m.Address != "" && len(want) < maxPeers {
			want[m.Name] = m
		}
	}
	var gone []*peer
	s.mu.Lock()
	for name, p := range s.peers {
		if m, still := want[name]; still && m.Address == p.address {
			p.member.Store(&m)
			continue
		}
		delete(s.peers, name)
		gone = append(gone, p)
	}
	for name, m := range want {
		if s.peers[name] == nil {
			p, err := s.dial(ctx, m)
			if err != nil {
				s.opts.Log.Error(err, "Cannot dial a replica", "replica", name, "address", m.Address)
				continue
			}
			s.peers[name] = p
		}
	}
	s.mu.Unlock()
	for _, p := range gone {
		p.close()
	}
}

func (s *Service) peer(name string) *peer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.peers[name]
}

func (s *Service) all() []*peer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.peers), func(a, b *peer) int { return cmp.Compare(a.name, b.name) })
}

// at returns the connected peer to which a cluster is attached. It returns nil if there is none, or if the cluster has a stream here.
func (s *Service) at(cluster string) *peer {
	if s.opts.Workers.Connected(cluster) {
		return nil
	}
	name, _ := s.opts.Fleet.Where(cluster)
	if name == "" {
		return nil
	}
	if p := s.peer(name); p != nil && p.connected() {
		return p
	}
	return nil
}

// settled is at for a tunnel, whose token is valid at one replica only. It first waits for a cluster that is about to attach again.
func (s *Service) settled(ctx context.Context, cluster string) *peer {
	if p := s.at(cluster); p != nil {
		return p
	}
	s.opts.Workers.Settle(ctx, cluster)
	return s.at(cluster)
}

// Dispatch implements calls.Dispatcher. The error is attach.ErrNotConnected or attach.ErrUnclear. If a call waited here for a cluster that
// attached to a peer meanwhile, and was not sent, it goes to that peer.
func (s *Service) Dispatch(ctx context.Context, cluster string, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	if p := s.at(cluster); p != nil {
		d.Ledger = s.opts.Workers.Mark() // of this replica's writes, which precede the call
		return p.dispatch(ctx, cluster, d)
	}
	began, timeout := s.opts.Clock.Now(), d.GetTimeout()
	answer, err := s.opts.Workers.Dispatch(ctx, cluster, d)
	if !errors.Is(err, attach.ErrNotConnected) || hasToken(d) {
		return answer, err
	}
	p, left := s.at(cluster), timeout.AsDuration()-s.opts.Clock.Since(began)
	if p == nil || timeout != nil && left <= 0 {
		return answer, err
	}
	d = proto.CloneOf(d) // an ended stream may still read the original
	d.Ledger, d.Timeout = s.opts.Workers.Mark(), nil
	if timeout != nil {
		d.Timeout = durationpb.New(left)
	}
	return p.dispatch(ctx, cluster, d)
}

// hasToken reports whether a call carries the token of a tunnel, which is valid at this replica only.
func hasToken(d *federationv1.Dispatch) bool {
	return d.GetReach() != nil || d.GetWatch() != nil || d.GetKubernetes() != nil
}

// teller passes the token of a tunnel to its cluster.
type teller = func(ctx context.Context, token string) error

// follow opens a tunnel here, or through the peer to which the cluster is attached. If the cluster left that peer before it got a token,
// follow tries once more where the cluster is attached then; because a token is valid only at the replica that issued it.
func follow[T any](
	ctx context.Context, s *Service, cluster string, tell teller, here func() (T, error), across func(*peer, teller) (T, error),
) (T, error) {
	p := s.settled(ctx, cluster)
	if p == nil {
		return here()
	}
	var told atomic.Bool
	out, err := across(p, func(ctx context.Context, token string) error {
		told.Store(true)
		return tell(ctx, token)
	})
	if err == nil || told.Load() || problem.FromError(err).Reason != problem.Unavailable {
		return out, err
	}
	switch to := s.next(ctx, cluster, p); {
	case to != nil && to != p:
		return across(to, tell)
	case s.opts.Workers.Connected(cluster):
		return here()
	default:
		return out, err
	}
}

// next returns the peer to which a cluster is attached after it left another, or nil. It waits for up to movePatience; because the peer may
// know earlier than this replica that the cluster has left.
func (s *Service) next(ctx context.Context, cluster string, left *peer) *peer {
	began := s.opts.Clock.Now()
	for {
		p := s.at(cluster)
		if p != left || s.opts.Clock.Since(began) >= movePatience || wallclock.Sleep(ctx, s.opts.Clock, movePause) != nil {
			return p
		}
	}
}

// OpenTunnel makes a cluster open a tunnel, as in package attach.
func (s *Service) OpenTunnel(ctx context.Context, cluster string, holder reach.Holder, tell teller) (reach.Tunnel, error) {
	here := func() (reach.Tunnel, error) { return s.opts.Workers.OpenTunnel(ctx, cluster, holder, tell) }
	return follow(ctx, s, cluster, tell, here, func(p *peer, tell teller) (reach.Tunnel, error) {
		s.metrics.tunnels.WithLabelValues("conversation").Inc()
		return link.Cross(ctx, p.client, &federationv1.PeerTunnel{ClusterId: cluster, Account: holder.Account, Sandbox: holder.Sandbox}, tell)
	})
}

// OpenFeed makes a cluster open a tunnel for changes of sandboxes, as in package attach.
func (s *Service) OpenFeed(ctx context.Context, cluster string, tell teller) (watch.Feed, error) {
	here := func() (watch.Feed, error) { return s.opts.Workers.OpenFeed(ctx, cluster, tell) }
	return follow(ctx, s, cluster, tell, here, func(p *peer, tell teller) (watch.Feed, error) {
		s.metrics.tunnels.WithLabelValues("watch").Inc()
		crossing, err := link.Cross(ctx, p.client, &federationv1.PeerTunnel{ClusterId: cluster, Feed: true}, tell)
		if err != nil {
			return nil, err
		}
		return feed{crossing}, nil
	})
}

// feed is a crossing that carries changes of sandboxes.
type feed struct{ *link.Crossing }

// Close implements watch.Feed.
func (f feed) Close() { f.Crossing.Close(nil) }

// Replicas lists all replicas, ordered by name.
func (s *Service) Replicas() []*sandboxv1.Replica {
	out := []*sandboxv1.Replica{{
		Name: s.opts.Name, Version: s.opts.Version, Address: s.opts.Address, Clusters: int32(s.opts.Fleet.Attached()), Reachable: true,
		Since: timestamppb.New(s.since), Self: true,
	}}
	for _, p := range s.all() {
		m := p.member.Load()
		one := &sandboxv1.Replica{
			Name: p.name, Version: m.Version, Address: p.address, Clusters: int32(m.Load), Reachable: p.connected(),
		}
		if hello := p.hello.Load(); hello != nil {
			one.Version, one.Since = hello.GetVersion(), hello.GetSince()
		}
		if one.GetReachable() {
			one.Clusters = int32(s.opts.Fleet.AttachedTo(p.name))
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b *sandboxv1.Replica) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out
}

// Loads returns how many clusters each connected peer has.
func (s *Service) Loads() (clusters []int) {
	for _, p := range s.all() {
		if p.connected() {
			clusters = append(clusters, s.opts.Fleet.AttachedTo(p.name))
		}
	}
	return clusters
}

// Unreachable lists the live members that have lacked a connection for Unheard, and counts those with a connection.
func (s *Service) Unreachable() (names []string, connected int) {
	now := s.opts.Clock.Now()
	for _, p := range s.all() {
		switch lost, ok := p.lost(); {
		case ok:
			connected++
		case now.Sub(lost) >= Unheard:
			names = append(names, p.name)
		}
	}
	return names, connected
}
