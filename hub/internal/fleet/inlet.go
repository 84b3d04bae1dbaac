// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/validate"
)

// maxInlet bounds the clusters that one peer may announce.
const maxInlet = 10_000

// Inlet receives the frames of one peer about the clusters that are attached to it. Each cluster has a relayed session here, which follows
// the same rules as a stream. An Inlet is for one goroutine.
type Inlet struct {
	fleet  *Fleet
	peer   string
	flows  map[string]*flow
	hinted map[hintKey]hinted
}

// flow is a cluster that is attached to the peer.
type flow struct {
	attached *federationv1.RelayAttached
	session  *Session // nil: not accepted so far
	refused  bool     // the refusal has been counted
	asked    bool     // a complete report is on its way
	at       time.Duration
}

// ErrRelay reports that a peer's frame is not valid and does not count.
var ErrRelay = errors.New("the peer's frame is not valid")

// NewInlet returns an Inlet for the peer with a name.
func (f *Fleet) NewInlet(peer string) *Inlet {
	return &Inlet{fleet: f, peer: peer, flows: map[string]*flow{}, hinted: map[hintKey]hinted{}}
}

// Close ends the relayed sessions. What the clusters reported stays (I5).
func (i *Inlet) Close() {
	i.unhint()
	for _, in := range i.flows {
		in.end()
	}
	clear(i.flows)
}

func (in *flow) end() {
	if in.session != nil {
		in.session.Close()
		in.session = nil
	}
}

// Take applies one frame. ask is true if the peer should send a complete report of the frame's cluster. A frame with an error changes
// nothing.
func (i *Inlet) Take(frame *federationv1.RelayFrame) (cluster string, ask bool, err error) {
	switch body := frame.GetBody().(type) {
	case *federationv1.RelayFrame_Attached:
		if err := i.check(body.Attached); err != nil {
			return "", false, err
		}
		id := body.Attached.GetClusterId()
		if was := i.flows[id]; was != nil && was.attached.GetStream() != body.Attached.GetStream() {
			was.end()
		}
		in := &flow{attached: body.Attached}
		i.flows[id] = in
		return id, i.open(in), nil
	case *federationv1.RelayFrame_Report:
		in := i.flow(body.Report.GetClusterId(), body.Report.GetStream())
		if in == nil {
			return "", false, nil
		}
		return in.attached.GetClusterId(), i.report(in, body.Report.GetReport()), nil
	case *federationv1.RelayFrame_Heartbeat:
		in := i.flow(body.Heartbeat.GetClusterId(), body.Heartbeat.GetStream())
		if in == nil {
			return "", false, nil
		}
		return in.attached.GetClusterId(), i.heartbeat(in, body.Heartbeat), nil
	case *federationv1.RelayFrame_Detached:
		if in := i.flow(body.Detached.GetClusterId(), body.Detached.GetStream()); in != nil {
			in.end()
			delete(i.flows, in.attached.GetClusterId())
		}
	case *federationv1.RelayFrame_Claims:
		i.hints(body.Claims)
	case *federationv1.RelayFrame_Contact:
		return "", false, i.contact(body.Contact)
	default: // from a newer build
	}
	return "", false, nil
}

func (i *Inlet) flow(cluster string, stream uint64) *flow {
	if in := i.flows[cluster]; in != nil && in.attached.GetStream() == stream {
		return in
	}
	return nil
}

// check validates an announcement; because its texts are kept and shown.
func (i *Inlet) check(a *federationv1.RelayAttached) error {
	if err := checkClusterID(a.GetClusterId()); err != nil {
		return err
	}
	if a.GetIncarnation() == 0 || a.GetStream() == 0 {
		return fmt.Errorf("%w: incarnation %d and stream %d of cluster %s, want more than 0", ErrRelay, a.GetIncarnation(), a.GetStream(),
			a.GetClusterId())
	}
	for _, text := range []struct{ field, value string }{
		{"version", a.GetVersion()}, {"cluster_uid", a.GetClusterUid()}, {"term", a.GetTerm()},
	} {
		if len(text.value) > segment.MaxUID {
			return fmt.Errorf("%w: %s %s, want at most %d bytes", ErrRelay, text.field, segment.Quote(text.value), segment.MaxUID)
		}
	}
	if i.flows[a.GetClusterId()] == nil && len(i.flows) >= maxInlet {
		return fmt.Errorf("%w: it has more than %d clusters", ErrRelay, maxInlet)
	}
	return nil
}

func checkClusterID(id string) error {
	if !validate.IsClusterID(id) {
		return fmt.Errorf("%w: cluster_id %s, want a cluster's name", ErrRelay, segment.Quote(id))
	}
	return nil
}

// open creates a cluster's relayed session. It returns true if this replica lacks the base of the cluster's deltas and should request a
// complete report.
func (i *Inlet) open(in *flow) (ask bool) {
	session, refusal := i.fleet.accept(i.peer, in.attached)
	if session == nil {
		if !in.refused {
			in.refused = true
			i.fleet.metrics.refused.WithLabelValues(string(refusal)).Inc()
			i.fleet.log.Info("Refusing a stream of a replica", "cluster", in.attached.GetClusterId(), "replica", i.peer, "reason", refusal)
		}
		return false
	}
	in.session = session
	return !session.synced && in.attached.GetComplete() && i.ask(in)
}

// ask reports whether to send a request for a complete report: one until the report arrives, or until askPause has passed.
func (i *Inlet) ask(in *flow) bool {
	now := i.fleet.now()
	if in.asked && now-in.at < askPause {
		return false
	}
	in.asked, in.at = true, now
	return true
}

func (i *Inlet) report(in *flow, r *federationv1.Report) (ask bool) {
	if in.session == nil {
		return false
	}
	r.Keys = nil // only the replica to which the cluster is attached adopts them
	ack := in.session.Report(r)
	if r.GetComplete() && r.GetLast() && in.session.synced {
		in.asked = false
	}
	return ack.GetSendComplete() && i.ask(in)
}

// heartbeat also retries a refused session; because the registry may have changed since.
func (i *Inlet) heartbeat(in *flow, h *federationv1.RelayHeartbeat) (ask bool) {
	if in.session == nil || !in.session.current() {
		in.session = nil
		return i.open(in)
	}
	if now := i.fleet.now(); h.GetNoReceipt() != in.session.cluster.misses(now) { // the cluster's own replica decides for all
		in.session.cluster.setReceipt(!h.GetNoReceipt(), now)
		in.session.cluster.evaluate()
	}
	if h.GetHeartbeat() == nil {
		return false // it only reports the missing receipt
	}
	ack := in.session.Heartbeat(h.GetHeartbeat())
	in.session.degrade(h.GetDegraded())
	return (ack.GetSendComplete() || !in.session.synced) && i.ask(in)
}

// degrade records the reason why, at the cluster's own replica, part of its reports does not count.
func (s *Session) degrade(why string) {
	if len(why) > maxDegraded {
		why = why[:maxDegraded]
	}
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if s.current() {
		s.cluster.degrade(why)
	}
}

// maxDegraded bounds a peer's reason for a degraded cluster.
const maxDegraded = 1024

// accept creates the session of a cluster that is attached to a peer, or returns a refusal. The new session replaces the previous one.
func (f *Fleet) accept(peer string, a *federationv1.RelayAttached) (*Session, Refusal) {
	c, now := f.obtain(a.GetClusterId()), f.now()
	s := &Session{
		cluster: c, via: peer, id: streamID{a.GetTerm(), a.GetIncarnation(), a.GetStream()}, replaced: make(chan struct{}),
		peer: Peer{ClusterID: c.ID},
	}
	if at := a.GetCertificateExpires(); at.IsValid() {
		s.peer.Expires = at.AsTime()
	}
	if at := a.GetCertificateIssued(); at.IsValid() {
		s.peer.Issued = at.AsTime()
	}
	s.incarnation.Store(a.GetIncarnation())
	s.outbox.init()
	c.mu.Lock()
	old := c.session.Load()
	refusal := decideRelayed(relayedFacts{
		uid: a.GetClusterUid(), registeredUID: c.record.UID, unknown: c.record.UID == "" && len(c.record.Forgotten) == 0,
		forgotten: c.record.Forgot(a.GetClusterUid()) || c.record.Revoked(), quarantined: c.isQuarantined(now),
		stream: s.id, last: c.last, highest: c.record.Incarnation, attached: old != nil, direct: old != nil && old.via == "",
	})
	if refusal != None {
		c.mu.Unlock()
		return nil, refusal
	}
	enrol := c.record.UID == ""
	c.admit(s, a)
	if old != nil {
		old.end()
		c.relayDetached(old)
	}
	c.setAttached(true)
	c.touch(now)
	c.mu.Unlock()
	if attached := f.onPeer.Load(); attached != nil {
		(*attached)(c.ID)
	}
	if enrol {
		f.enrol()
	}
	c.evaluate()
	return s, None
}

// admit makes a relayed session the cluster's session. The session needs no complete report if this replica has the view on which its
// deltas are based. Only the replica to which the cluster is attached writes the registry. Called with mu held.
func (c *cluster) admit(s *Session, a *federationv1.RelayAttached) {
	c.session.Store(s)
	c.via.Store(&s.via)
	c.last, c.version, c.hosting = s.id, a.GetVersion(), a.GetHosting()
	if c.record.UID == "" { // registered a moment ago; the registry will follow
		c.record.ClusterID, c.record.UID, c.record.RegisteredAt = c.ID, a.GetClusterUid(), c.fleet.clock.Now().UTC()
	}
	if a.GetIncarnation() > c.record.Incarnation {
		c.record.Incarnation, c.record.Term = a.GetIncarnation(), a.GetTerm()
	}
	if c.order.Incarnation != a.GetIncarnation() {
		c.order = segment.Order{Incarnation: a.GetIncarnation()}
		c.inFlight.covered(c.order)
	}
	same := c.order.Sequence == a.GetSequence() && c.holdings.digest == a.GetDigest()
	if same && (a.GetComplete() || c.known.Load()) {
		s.becomeSynced()
	}
}

// NoReceipt records that a peer did not confirm a dispatch for a cluster that is attached to it.
func (f *Fleet) NoReceipt(clusterID, peer string) {
	if c := f.cluster(clusterID); c != nil {
		if s := c.session.Load(); s != nil && s.via == peer {
			s.NoReceipt()
		}
	}
}

// OnPeer sets the function that the fleet calls with each cluster that attaches to a peer.
func (f *Fleet) OnPeer(attached func(clusterID string)) { f.onPeer.Store(&attached) }

// Where returns whether a cluster is attached to this replica, or else the peer to which it is attached, as far as this replica knows. The
// peer may be outdated: it is kept when the relay breaks.
func (f *Fleet) Where(clusterID string) (peer string, here bool) {
	c := f.cluster(clusterID)
	if c == nil {
		return "", false
	}
	if s := c.session.Load(); s != nil {
		return s.via, s.via == ""
	}
	if via := c.via.Load(); via != nil {
		return *via, false
	}
	return "", false
}

// Attached counts the clusters that are attached to this replica.
func (f *Fleet) Attached() int { return f.AttachedTo("") }

// AttachedTo counts the clusters that are attached to a peer.
func (f *Fleet) AttachedTo(peer string) (n int) {
	for _, c := range f.sorted() {
		if s := c.session.Load(); s != nil && s.via == peer {
			n++
		}
	}
	return n
}
