// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// leaderPoll is the interval at which the leader's address is read from memory.
	leaderPoll = 500 * time.Millisecond
	// dialAgain is the first pause after a failed stream; it grows to maxDialAgain.
	dialAgain    = 200 * time.Millisecond
	maxDialAgain = 5 * time.Second
	// readyPatience bounds how long missing copies keep a replica from being ready.
	readyPatience = time.Minute
	// unledPatience bounds that time while no leader's address is known. A worker of an earlier build has none in its lease.
	unledPatience = 5 * time.Second
	maxSessions   = 16
)

// Leader knows which replica leads.
type Leader interface {
	// Address returns the address at which the leader listens for replicas. It is empty while it is unknown, or if the leader does not listen.
	// self is true if this replica leads.
	Address() (address string, self bool)
}

// PeerOptions configure Peers. All but Metrics and Listener are required.
type PeerOptions struct {
	History     *History
	ClusterID   string
	Credentials *link.Credentials
	Leader      Leader
	Listen      string
	Listener    net.Listener // instead of Listen
	Clock       clock.Clock
	Metrics     prometheus.Registerer
	Log         logr.Logger
}

// Peers merge the records of a worker's replicas.
type Peers struct {
	federationv1.UnimplementedHistoryServer
	opts    PeerOptions
	began   time.Time
	readers sync.WaitGroup
	calls   Calls

	mu       sync.Mutex
	calling  *grpc.ClientConn // for calls to the leader; copies use another connection, so that no call waits behind them
	called   string           // its address
	sessions map[*session]*follower
	changed  chan struct{} // closed when a session has changed
	caught   bool
	over     bool // no more calls
}

// Calls are the services between replicas besides copies.
type Calls interface {
	Register(server grpc.ServiceRegistrar)
	Interceptors() []grpc.UnaryServerInterceptor
}

// follower is the state of a session's remote replica.
type follower struct {
	whole bool   // has had all records, so Keep waits for it
	upTo  uint64 // the number that it has acknowledged
}

// NewPeers creates Peers, and makes the history's Keep wait for followers.
func NewPeers(opts PeerOptions) (*Peers, error) {
	p := &Peers{opts: opts, began: opts.Clock.Now(), sessions: map[*session]*follower{}, changed: make(chan struct{})}
	if opts.Metrics != nil {
		err := opts.Metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "atoll_worker_history_followers",
			Help: "Replicas that have all terminal records of this one, and that new ones wait for.",
		}, func() float64 { return float64(p.Followers()) }))
		if err != nil {
			return nil, fmt.Errorf("registering metrics of copies: %w", err)
		}
	}
	opts.History.mu.Lock()
	defer opts.History.mu.Unlock()
	opts.History.confirm, opts.History.tell = p.confirm, p.tell
	return p, nil
}

// Offer sets the services that other replicas can call. Call it before Start.
func (p *Peers) Offer(calls Calls) { p.calls = calls }

// Elsewhere returns a connection to the leader, or nil if this replica leads or the leader is unknown. The connection is closed when
// another replica leads.
func (p *Peers) Elsewhere() grpc.ClientConnInterface {
	if conn := p.call(p.opts.Leader.Address()); conn != nil {
		return conn
	}
	return nil
}

// call returns the one connection for calls, to the given address. It returns nil if that is this replica itself.
func (p *Peers) call(address string, self bool) *grpc.ClientConn {
	if self {
		address = ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if address == p.called {
		return p.calling
	}
	p.hangUp()
	if address == "" || p.over {
		return nil
	}
	conn, err := link.DialPeer(address, p.opts.ClusterID, p.opts.Credentials)
	if err != nil {
		p.opts.Log.Error(err, "Preparing to call the replica that leads", "address", address)
		return nil
	}
	p.calling, p.called = conn, address
	return conn
}

// hangUp closes the connection for calls. The caller holds the lock.
func (p *Peers) hangUp() {
	if p.calling == nil {
		return
	}
	if err := p.calling.Close(); err != nil {
		p.opts.Log.Error(err, "Closing the connection to a replica", "address", p.called)
	}
	p.calling, p.called = nil, ""
}

// end ends calls permanently.
func (p *Peers) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.hangUp()
}

// NeedLeaderElection makes every replica listen and follow.
func (p *Peers) NeedLeaderElection() bool { return false }

// Start listens for replicas, and follows the leader, until ctx ends.
func (p *Peers) Start(ctx context.Context) error {
	lis := p.opts.Listener
	if lis == nil {
		var config net.ListenConfig
		var err error
		if lis, err = config.Listen(ctx, "tcp", p.opts.Listen); err != nil {
			return fmt.Errorf("listening for replicas: %w", err)
		}
	}
	var interceptors []grpc.UnaryServerInterceptor
	if p.calls != nil {
		interceptors = p.calls.Interceptors()
	}
	server := link.NewPeerServer(p.opts.Credentials, p.opts.ClusterID, p.opts.Log, interceptors...)
	federationv1.RegisterHistoryServer(server, p)
	if p.calls != nil {
		p.calls.Register(server)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(serve.Limit(lis, link.MaxHandshakes, link.MaxHandshakesPerAddress)) }()
	p.opts.Log.Info("Listening for replicas", "address", lis.Addr().String())
	defer p.end()
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		p.follow(ctx)
	}()
	defer p.readers.Wait()
	defer func() { <-followed }()
	select {
	case <-ctx.Done():
		server.Stop()
		<-served
		return nil
	case err := <-served:
		return fmt.Errorf("serving replicas: %w", err)
	}
}

// Copy implements federationv1.HistoryServer.
func (p *Peers) Copy(stream grpc.BidiStreamingServer[federationv1.CopyFrame, federationv1.CopyFrame]) error {
	f := &follower{}
	s := newSession(p.opts.History, stream, func(upTo uint64, whole bool) { p.acknowledged(f, upTo, whole) }, func() {})
	if !p.add(s, f) {
		return status.Error(codes.ResourceExhausted, "too many replicas follow")
	}
	defer p.remove(s)
	err := s.run(stream.Context(), &p.readers)
	p.opts.Log.Info("A replica follows no longer", "reason", err.Error())
	return status.Error(codes.Aborted, err.Error())
}

// follow maintains a stream to the leader.
func (p *Peers) follow(ctx context.Context) {
	wait := dialAgain
	for ctx.Err() == nil {
		address, self := p.opts.Leader.Address()
		p.call(address, self) // calls to an earlier leader end now
		if address == "" || self {
			_ = wallclock.Sleep(ctx, p.opts.Clock, leaderPoll)
			continue
		}
		start := p.opts.Clock.Now()
		err := p.followAt(ctx, address)
		if ctx.Err() != nil {
			return
		}
		p.opts.Log.Info("Not following the leader's history, trying again", "leader", address, "reason", err.Error())
		if wait = min(2*wait, maxDialAgain); p.opts.Clock.Since(start) > maxDialAgain {
			wait = dialAgain
		}
		_ = wallclock.Sleep(ctx, p.opts.Clock, wait)
	}
}

var errNewLeader = errors.New("another replica leads")

// followAt runs one stream to the leader.
func (p *Peers) followAt(ctx context.Context, address string) (err error) {
	conn, err := link.DialPeer(address, p.opts.ClusterID, p.opts.Credentials)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for ctx.Err() == nil {
			if now, self := p.opts.Leader.Address(); now != address || self {
				cancel(errNewLeader)
			}
			_ = wallclock.Sleep(ctx, p.opts.Clock, leaderPoll)
		}
	}()
	stream, err := federationv1.NewHistoryClient(conn).Copy(ctx)
	if err != nil {
		return fmt.Errorf("following: %w", err)
	}
	return newSession(p.opts.History, stream, func(uint64, bool) {}, p.hasCaught).run(ctx, &p.readers)
}

func (p *Peers) hasCaught() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.caught {
		p.opts.Log.Info("This replica has all records that the leader has", "records", p.opts.History.Len())
	}
	p.caught = true
}

// Caught reports whether this replica may replace another one: it leads, has had all of the leader's records, or has tried for long enough.
func (p *Peers) Caught() bool {
	address, self := p.opts.Leader.Address()
	p.mu.Lock()
	defer p.mu.Unlock()
	tried := p.opts.Clock.Since(p.began)
	return self || p.caught || tried > readyPatience || address == "" && tried > unledPatience
}

// Followers returns how many replicas have all records.
func (p *Peers) Followers() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.sessions {
		if f.whole {
			n++
		}
	}
	return n
}

func (p *Peers) add(s *session, f *follower) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sessions) >= maxSessions {
		return false
	}
	p.sessions[s] = f
	return true
}

func (p *Peers) remove(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s)
	p.announce()
}

func (p *Peers) acknowledged(f *follower, upTo uint64, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.upTo, f.whole = upTo, f.whole || whole
	p.announce()
}

// announce wakes the callers that wait for copies. The caller holds the lock.
func (p *Peers) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// confirm waits until every follower has acknowledged the log up to a number, or no longer follows.
func (p *Peers) confirm(ctx context.Context, upTo uint64) error {
	for {
		done, changed := p.confirmed(upTo)
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *Peers) confirmed(upTo uint64) (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.sessions {
		if f.whole && f.upTo < upTo {
			return false, p.changed
		}
	}
	return true, p.changed
}

func (p *Peers) tell(ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.sessions {
		s.tell(ids)
	}
}
