// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/slots"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/pace"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/tally"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/validate"
)

const (
	helloTimeout = 10 * time.Second
	// beginTimeout includes the write of the incarnation in the worker's cluster.
	beginTimeout   = 30 * time.Second
	receiptTimeout = time.Second
	// maxOpening bounds the streams of a cluster whose frames the hub holds before it admits one (I14). A worker opens one stream at a time.
	// Its successor may connect before the hub has noticed the end of the previous stream.
	maxOpening = 8
)

// Options configure a Server. Fleet, Clock and Log are required.
type Options struct {
	Fleet *fleet.Fleet
	Clock clock.Clock
	Log   logr.Logger
	// Tunnels bounds the tunnels of each cluster: in total, of an account, and of a sandbox.
	Tunnels reach.Shares
	// Rates bounds the bandwidth of tunnels in the same way.
	Rates reach.Rates
	// Authority renews workers' certificates. Nil: the certificates come from files.
	Authority Authority
	// Ledger provides the marks of the hub's ledger that workers remember. Nil: there are none.
	Ledger Ledger
	// Audit gets a line for each cluster that was admitted or refused. nil: none.
	Audit *audit.Log
}

// Ledger provides workers with marks of how far the ledger has advanced, and compares the marks that they remember.
type Ledger interface {
	// Mark returns the current mark, or nil if there is none.
	Mark() *federationv1.LedgerMark
	// Remembered compares a cluster's mark, which is nil if it has none. It returns true if claim keys were lost: all streams must begin
	// again.
	Remembered(ctx context.Context, clusterID string, mark *federationv1.LedgerMark) (lost bool, err error)
}

type noLedger struct{}

func (noLedger) Mark() *federationv1.LedgerMark { return nil }

func (noLedger) Remembered(context.Context, string, *federationv1.LedgerMark) (bool, error) {
	return false, nil
}

// Handler processes what workers report about claims.
type Handler interface {
	// OnEnded stores terminal records. They are acknowledged when it returns nil, and the worker repeats them until then.
	OnEnded(ctx context.Context, clusterID string, ended *federationv1.Ended) error
	// OnKeys gets the complete key index of a cluster, with each report that has it: every complete report and some others.
	OnKeys(clusterID string, keys []*federationv1.KeyHolder)
	// OnRestored gets the key index after the cluster's etcd was restored: keys that it omits are lost.
	OnRestored(clusterID string, keys []*federationv1.KeyHolder)
}

// Server is the hub's federation.v1.Link. Register it on a server of link.NewServer.
type Server struct {
	federationv1.UnimplementedLinkServer
	opts    Options
	metrics *metrics
	orphans *orphans
	tunnels *tunnels
	carried *reach.Bandwidth
	handler atomic.Pointer[Handler]                       // nil until Handle
	onLost  atomic.Pointer[func(*federationv1.RelayLost)] // nil: there is one replica

	opening *tally.Tally[string] // by account: number of streams that have not begun
	unnamed *tally.Tally[string] // by cluster: number of tunnels that have named no token
	// attaches limits the rate of Welcomes, by account (accountOf).
	attaches *pace.Pace[string]
	reports  slots.Slots // for first complete reports

	mu       sync.RWMutex
	conns    map[string]*conn
	holds    map[string]*hold     // by cluster
	renewals map[string]time.Time // by cluster: the end of its slot to renew
}

// NewServer returns a Server without streams. It refuses streams until Handle; because the handler sends calls to workers through this
// Server, and so is created later.
func NewServer(opts Options) *Server {
	if opts.Ledger == nil {
		opts.Ledger = noLedger{}
	}
	s := &Server{
		opts: opts, metrics: newMetrics(), orphans: newOrphans(), tunnels: newTunnels(opts.Tunnels), conns: map[string]*conn{},
		carried: reach.NewBandwidth(opts.Rates, opts.Clock),
		holds:   map[string]*hold{}, renewals: map[string]time.Time{},
		attaches: pace.New[string](attachLimits, opts.Clock),
		opening:  tally.New[string](maxOpening), unnamed: tally.New[string](maxUnnamed),
		reports: newReportSlots(opts.Clock),
	}
	opts.Fleet.OnRevoke(func() { s.tunnels.endRevoked(opts.Fleet.Refuses) })
	opts.Fleet.OnPeer(s.stopHolding)
	return s
}

// Handle sets the handler and admits workers.
func (s *Server) Handle(h Handler) { s.handler.Store(&h) }

// stream is the hub's side of one attached stream.
type stream = grpc.BidiStreamingServer[federationv1.WorkerFrame, federationv1.HubFrame]

// Attach serves one stream of one worker until either side, or a newer stream of the same cluster, ends it.
func (s *Server) Attach(stream stream) error {
	clusterID, err := link.PeerCluster(stream.Context())
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	handler := s.handler.Load()
	if handler == nil {
		return status.Error(codes.Unavailable, "the hub is starting")
	}
	log := s.opts.Log.WithValues("cluster", clusterID)
	hello, session, reported, err := s.open(stream, clusterID)
	if err != nil {
		log.Info("did not attach", "reason", err.Error())
		var refused *refusedError
		if errors.As(err, &refused) {
			s.record(stream.Context(), clusterID, refused.frame, err)
			return refused.error
		}
		s.record(stream.Context(), clusterID, nil, err)
		return err
	}
	s.record(stream.Context(), clusterID, nil, nil)
	defer session.Close()
	defer reported()
	c := s.newConn(clusterID, hello, session, *handler, log)
	c.reported = reported
	c.unacknowledged(hello.GetUnacknowledged())
	s.replace(c)
	defer s.remove(c)
	if session.Outdated() { // EndAll may have come before the stream had its place
		session.Close()
	}
	log.Info("attached", "incarnation", session.Incarnation())
	err = c.serve(stream)
	log.Info("detached", "reason", fmt.Sprint(err))
	return err
}

// open runs the handshake from Hello to Begin. A refusal is sent to the worker and returned as a status. reported frees the stream's slot.
func (s *Server) open(stream stream, clusterID string) (hello *federationv1.Hello, session *fleet.Session, reported func(), err error) {
	peer := peerOf(stream.Context(), clusterID)
	why := s.opts.Fleet.Refusal(peer)
	account := accountOf(clusterID, why)
	if !s.opening.Enter(account) {
		return nil, nil, nil, status.Errorf(codes.ResourceExhausted, "%d streams of cluster %s have not begun yet", maxOpening, clusterID)
	}
	defer s.opening.Leave(account)
	frame, err := link.Receive(stream.Recv, s.opts.Clock, helloTimeout, errNotIntroduced)
	if err != nil {
		return nil, nil, nil, err
	}
	hello = frame.GetHello()
	if hello == nil {
		return nil, nil, nil, status.Error(codes.FailedPrecondition, "the first frame is not Hello")
	}
	if err := checkUnacknowledged(hello.GetUnacknowledged()); err != nil {
		return nil, nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := s.throttle(stream.Context(), account); err != nil {
		return nil, nil, nil, err
	}
	if why != fleet.None { // before its mark of the ledger counts
		return nil, nil, nil, refuse(stream, s.opts.Fleet.Refuse(peer, why, ""))
	}
	lost, err := s.opts.Ledger.Remembered(stream.Context(), clusterID, hello.GetLedger())
	if err != nil {
		return nil, nil, nil, status.Error(codes.Unavailable, fmt.Errorf("comparing the ledger with what the cluster remembers: %w", err).Error())
	}
	if lost {
		s.EndAll()
	}
	session, welcome, refused := s.opts.Fleet.Connect(peer, hello)
	if refused != nil {
		return nil, nil, nil, refuse(stream, refused)
	}
	welcome.Ledger = s.opts.Ledger.Mark()
	reported = func() {}
	if !welcome.GetDeltas() && !welcome.GetEtcdRestored() { // after a restore the report must not wait (I1)
		reported = s.awaitSlot(stream, hello, session)
	}
	if err := s.begin(stream, clusterID, session, welcome); err != nil {
		reported()
		session.Close()
		return nil, nil, nil, err
	}
	return hello, session, reported, nil
}

func (s *Server) begin(stream stream, clusterID string, session *fleet.Session, welcome *federationv1.Welcome) error {
	if err := stream.Send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	frame, err := link.Receive(stream.Recv, s.opts.Clock, beginTimeout, errNotIntroduced)
	if err != nil {
		return err
	}
	begin := frame.GetBegin()
	if begin == nil {
		return status.Error(codes.FailedPrecondition, "the frame after Welcome is not Begin")
	}
	s.expect(clusterID)
	if err := session.Begin(begin); err != nil {
		s.stopHolding(clusterID)
		return status.Error(codes.FailedPrecondition, fmt.Errorf("beginning incarnation %d: %w", begin.GetIncarnation(), err).Error())
	}
	return nil
}

var errNotIntroduced = status.Error(codes.DeadlineExceeded, "the worker did not introduce itself in time")

// replace makes c the cluster's stream. The previous stream ends through its session's Replaced. A stream that was replaced since its Begin
// changes nothing; because its successor may have its place already, and would get no calls.
func (s *Server) replace(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-c.session.Replaced():
		return
	default:
	}
	s.conns[c.clusterID] = c
	s.endHold(c.clusterID)
	delete(s.renewals, c.clusterID)
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.clusterID] == c {
		delete(s.conns, c.clusterID)
	}
}

// Mark returns how far this process's writes of the ledger have advanced, or nil if that is not known.
func (s *Server) Mark() *federationv1.LedgerMark { return s.opts.Ledger.Mark() }

// EndAll ends all streams, so that they begin again.
func (s *Server) EndAll() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range s.conns {
		c.session.Close()
	}
}

// wakeReleases makes the cluster's stream release sandboxes that no caller got. If there is no stream, the next one does.
func (s *Server) wakeReleases(clusterID string) {
	if c := s.conn(clusterID); c != nil {
		wake(c.releases)
	}
}

// Connected reports whether a cluster has a stream here, or is about to attach again.
func (s *Server) Connected(clusterID string) bool {
	return s.conn(clusterID) != nil || s.holding(clusterID)
}

// ReleaseUndelivered releases a sandbox of a claim without a key whose response was lost on its way to the caller. It ignores a sandbox id
// that the cluster cannot have minted.
func (s *Server) ReleaseUndelivered(clusterID, sandbox string) {
	if cluster, ok := validate.ClusterOf(sandbox); ok && cluster == clusterID {
		s.orphans.queueRelease(clusterID, sandbox)
		s.wakeReleases(clusterID)
	}
}

// OnLost sets the function that is called with the open calls of an ended stream and the sandboxes that it could not release; because the
// worker may attach to another replica.
func (s *Server) OnLost(f func(*federationv1.RelayLost)) { s.onLost.Store(&f) }

func (s *Server) lost(left *federationv1.RelayLost) {
	if f := s.onLost.Load(); f != nil {
		(*f)(left)
	}
}

// LostElsewhere takes the open calls, and the sandboxes to release, of a stream that ended at another replica, and settles them once the
// cluster has a stream here.
func (s *Server) LostElsewhere(lost *federationv1.RelayLost) {
	for _, l := range lost.GetCalls() {
		id := callID{cluster: l.GetClusterId(), term: l.GetTerm(), stream: l.GetStream(), dispatch: l.GetDispatch()}
		if s.opts.Fleet.Registration(id.cluster) != "" && s.orphans.addLost(id) {
			s.wakeReleases(id.cluster)
		}
	}
	for _, sandbox := range lost.GetSandboxIds() {
		if cluster, ok := validate.ClusterOf(sandbox); ok && s.opts.Fleet.Registration(cluster) != "" {
			s.ReleaseUndelivered(cluster, sandbox)
		}
	}
}

func (s *Server) conn(clusterID string) *conn {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.conns[clusterID]
}

// InFlight counts the calls that wait for a response, over all streams (I10).
func (s *Server) InFlight() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for _, c := range s.conns {
		n += c.table.len()
	}
	return n
}

// Dispatch sends one call to a cluster's worker and waits for the response. It sets id, incarnation and trace of d, and the timeout unless
// d has one that is shorter than the rest of ctx. Dispatch owns d from then on. The error is ErrNotConnected or ErrUnclear. The outcome of
// the call itself is in the response.
func (s *Server) Dispatch(ctx context.Context, clusterID string, d *federationv1.Dispatch) (answer *federationv1.Answer, err error) {
	ctx, span := telemetry.Start(ctx, "dispatch")
	if span.IsRecording() {
		span.SetAttributes(dispatchAttributes(clusterID, d)...)
		defer func() { endDispatch(span, answer, err) }()
	}
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	began := s.opts.Clock.Now()
	defer func() { s.metrics.dispatched(d, s.opts.Clock.Since(began), answer, err) }()
	c := s.settled(ctx, clusterID)
	if c == nil {
		return nil, fmt.Errorf("%w: no stream of cluster %s", ErrNotConnected, clusterID)
	}
	if answer, err = c.dispatch(ctx, d); err != nil {
		return s.repeat(ctx, c, d, began, err)
	}
	return answer, nil
}
