// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

var (
	// ErrReplaced reports that a newer stream of the cluster took over, or that the cluster was quarantined.
	ErrReplaced = errors.New("the stream was replaced")
	// ErrIncarnation refuses a Begin whose incarnation is not higher than another term's.
	ErrIncarnation = errors.New("the incarnation is not new")
	// ErrTooOften refuses a Begin of a cluster that has used up its registry writes.
	ErrTooOften = errors.New("the cluster begins too often")
)

// Session is one attached stream of this replica, or a stream of a peer that the peer relays. Its methods never wait for another cluster.
// The goroutine that reads the stream calls Begin, Report and Heartbeat, and the one that writes it calls NextForeign. Any goroutine may
// call the other methods.
type Session struct {
	cluster         *cluster
	peer            Peer
	via             string // the peer that relays it; empty: a stream of this replica
	id              streamID
	resourceVersion uint64
	incarnation     atomic.Uint64
	replaced        chan struct{}
	once            sync.Once
	outbox          outbox
	feed            feed

	restored   bool   // the cluster's etcd went back before this stream
	recovering bool   // the Welcome requested all keys of the cluster
	beat       uint64 // the highest number of a heartbeat
	assembly   assembly
	keys       *[]*federationv1.KeyHolder // of the report that has just counted
	synced     bool                       // a complete report of this stream has counted, or its first delta if it needs no complete report
	deltas     bool                       // the hub has the view that the hello names: no complete report is needed
	asking     asking
}

// Peer describes the certificate of the peer that opens a stream.
type Peer struct {
	ClusterID string
	Key       string    // link.PeerKey; empty: not known
	Issued    time.Time // when the certificate became valid; zero: not known
	Expires   time.Time // of the certificate; zero: not known
	Issuer    string    // link.PeerIssuer; empty: not known
}

// Connect admits or refuses a stream of the cluster that its certificate names. An admitted stream replaces the previous one.
func (f *Fleet) Connect(peer Peer, hello *federationv1.Hello) (
	*Session, *federationv1.Welcome, *federationv1.Refused,
) {
	clusterID := peer.ClusterID
	c := f.obtain(clusterID)
	if err := checkHello(hello); err != nil {
		f.metrics.refused.WithLabelValues(string(RefusedInvalid)).Inc()
		f.log.Error(err, "Refusing a stream", "cluster", clusterID)
		refused := refused(RefusedInvalid)
		refused.Message = err.Error()
		return nil, nil, refused
	}
	c.durable.Lock()
	defer c.durable.Unlock()
	refusal := decideHello(c.gather(peer, hello))
	for refusal == None {
		err := c.register(peer, hello)
		if err == nil {
			break
		}
		if refusal = RegistryUnavailable; errors.Is(err, errSuperseded) { // another replica was first
			refusal = decideHello(c.gather(peer, hello))
			continue
		}
		f.log.Error(err, "Registering a cluster", "cluster", clusterID)
	}
	if refusal != None {
		return nil, nil, f.Refuse(peer, refusal, hello.GetClusterUid())
	}
	s, welcome := c.attach(peer, hello)
	if why := f.Refusal(peer); why != None { // forgotten under another name in the meantime
		s.Close()
		return nil, nil, refused(why)
	}
	return s, welcome, nil
}

// gather records the contact and returns the inputs of decideHello. A hello with a revoked certificate, or of a forgotten cluster, does not
// count as a contact; because it would quarantine the cluster that has the name.
func (c *cluster) gather(peer Peer, hello *federationv1.Hello) helloFacts {
	now := c.fleet.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	facts := helloFacts{
		protocol: hello.GetProtocol(), uid: hello.GetClusterUid(), registeredUID: c.record.UID,
		forgotten: c.record.Forgot(hello.GetClusterUid()), revoked: c.record.Revoked() || c.fleet.Refuses(peer),
		keyRevoked: c.keyRevoked(peer),
		hello:      streamID{hello.GetTerm(), hello.GetIncarnation(), hello.GetStream()}, last: c.last, alive: c.alive(now),
	}
	if facts.registeredUID == facts.uid && !facts.revoked && !facts.keyRevoked && !facts.forgotten {
		beside := facts.alive && facts.hello.term != facts.last.term && facts.hello.incarnation <= facts.last.incarnation
		c.noteContact(contact{facts.hello.term, now, beside})
		if beside || c.isQuarantined(now) { // at peers, other hellos may arrive out of order and look like alternating terms
			c.relayContact(facts.uid, facts.hello.term, beside)
		}
	}
	facts.quarantined = c.isQuarantined(now)
	return facts
}

// register binds the name to its first cluster. The binding is durable before the cluster gets its stream.
func (c *cluster) register(peer Peer, hello *federationv1.Hello) error {
	uid := hello.GetClusterUid()
	c.mu.Lock()
	registered := c.record.UID != ""
	c.mu.Unlock()
	if registered {
		return nil
	}
	r, err := c.write(context.Background(), func(r *Record) error {
		if r.UID != "" || r.Revoked() || r.Forgot(uid) {
			return errSuperseded
		}
		r.RegisteredAt = c.fleet.clock.Now().UTC()
		resetRecord(r, uid)
		r.AddKey(peer.Key) // in addition to the keys that were issued to it by an invitation
		return nil
	}, func(r Record) { c.record = r })
	if err != nil {
		return err
	}
	if r.UID != uid {
		return errSuperseded
	}
	c.fleet.enrol()
	return nil
}

func (c *cluster) attach(peer Peer, hello *federationv1.Hello) (*Session, *federationv1.Welcome) {
	s := &Session{
		cluster: c, peer: peer, id: streamID{hello.GetTerm(), hello.GetIncarnation(), hello.GetStream()},
		resourceVersion: hello.GetResourceVersion(), replaced: make(chan struct{}),
	}
	s.outbox.init()
	c.met.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.version, c.hosting = s.id, hello.GetVersion(), hello.GetHosting()
	c.unsaved = c.record.AddKey(peer.Key) || c.unsaved
	if c.record.Trust != hello.GetTrust() || c.record.Issuer != peer.Issuer {
		c.record.Trust, c.record.Issuer, c.unsaved = hello.GetTrust(), peer.Issuer, true
		c.fleet.soon.hurry(c)
	}
	if old := c.session.Swap(s); old != nil {
		old.end()
		c.relayDetached(old)
	}
	c.via.Store(nil)
	c.setAttached(false) // until it begins, nothing can be dispatched to it
	r := c.recordCopy()
	welcome := &federationv1.Welcome{
		Protocol: protocolVersion, Version: c.fleet.version, ClusterId: c.ID,
		HighestIncarnation: r.Incarnation, HighestTerm: r.Term,
		HeartbeatInterval: durationpb.New(heartbeatInterval),
		Recovering:        c.fleet.recovers(c.ID),
		Allotments:        c.fleet.allots,
		EtcdRestored:      wentBack(s.resourceVersion, r.ResourceVersion),
	}
	s.restored, s.recovering = welcome.GetEtcdRestored(), welcome.GetRecovering()
	s.deltas = decideDeltas(deltaFacts{
		known: c.known.Load(), recovering: welcome.GetRecovering(), restored: s.restored, suspects: len(c.suspects) > 0,
		order: c.order, digest: c.holdings.digest, acknowledgedTerm: hello.GetTerm(), term: r.Term,
		acknowledged:       segment.Order{Incarnation: hello.GetIncarnation(), Sequence: hello.GetAcknowledged()},
		acknowledgedDigest: hello.GetDigest(),
	})
	welcome.Deltas = s.deltas
	for _, k := range r.Tombstones {
		welcome.Tombstones = append(welcome.Tombstones, k.Proto())
	}
	return s, welcome
}

func refused(r Refusal) *federationv1.Refused {
	out := &federationv1.Refused{Reason: string(r), RetryAfter: durationpb.New(lastChoiceAfter)}
	switch r {
	case IdentityMismatch:
		out.Message = "the name is bound to another cluster, by the uid of its namespace kube-system"
		out.RetryAfter = durationpb.New(time.Minute)
	case RefusedQuarantined:
		out.Message = "two clusters with this name and the same kube-system uid take turns; stop one of them"
		out.RetryAfter = durationpb.New(quarantinePeriod / 5)
	case OlderStream:
		out.Message = "a newer stream of this cluster is attached"
	case ProtocolUnsupported:
		out.Message = fmt.Sprintf("this hub speaks protocol %d", protocolVersion)
		out.RetryAfter = durationpb.New(time.Minute)
	case RefusedInvalid:
		out.RetryAfter = durationpb.New(time.Minute)
	case RefusedForgotten:
		out.Message = "this cluster, or one with the same certificate key, was removed from the federation; `atollctl cluster undrain` takes " +
			"that back"
		out.RetryAfter = durationpb.New(quarantinePeriod)
	case RefusedRevoked:
		out.Message = "the certificate was revoked; `atollctl cluster invite` lets the cluster come back"
		out.RetryAfter = durationpb.New(time.Minute)
	case RegistryUnavailable:
		out.Message = "the hub cannot write its registry"
		out.RetryAfter = durationpb.New(saveTimeout)
	}
	return out
}

// Begin sets the stream's incarnation. The hub makes it durable before any report of it counts, so that a restarted hub accepts no older
// one.
func (s *Session) Begin(b *federationv1.Begin) error {
	c := s.cluster
	c.durable.Lock()
	defer c.durable.Unlock()
	incarnation := b.GetIncarnation()
	c.mu.Lock()
	r := c.recordCopy()
	c.mu.Unlock()
	if err := s.mayBegin(incarnation, r); err != nil {
		return err
	}
	if !s.current() {
		return ErrReplaced
	}
	// A stream that returns within its term must not depend on free disk space.
	known := r.Incarnation == incarnation && r.Term == s.id.term && !s.restored
	begin := func(r *Record) {
		r.Incarnation, r.Term = incarnation, s.id.term
		if s.resourceVersion > 0 {
			// A lower version is recorded too: the worker got EtcdRestored in the Welcome before it began.
			r.ResourceVersion = s.resourceVersion
		}
	}
	if known {
		begin(&r)
		return c.begin(s, r)
	}
	if !c.begins.take(c.fleet.now()) {
		return fmt.Errorf("%w: %d at once, then one in %s", ErrTooOften, beginBurst, beginEvery)
	}
	r, err := c.write(context.Background(), func(r *Record) error {
		if err := s.mayBegin(incarnation, *r); err != nil { // another replica may have been first
			return err
		}
		begin(r)
		return nil
	}, func(Record) {}) // c.begin takes it over
	if err != nil {
		return fmt.Errorf("beginning incarnation %d: %w", incarnation, err)
	}
	if r.Incarnation != incarnation { // a later leader has begun at another replica in the meantime
		return ErrReplaced
	}
	return c.begin(s, r)
}

// mayBegin refuses an incarnation that is not new.
func (s *Session) mayBegin(incarnation uint64, r Record) error {
	if incarnation == 0 || incarnation < r.Incarnation || incarnation == r.Incarnation && r.Term != s.id.term {
		return fmt.Errorf("%w: %d of term %s, the highest is %d of term %s", ErrIncarnation, incarnation, s.id.term, r.Incarnation, r.Term)
	}
	return nil
}

// begin sets the incarnation of a stream. It returns ErrReplaced if another replica has recorded a later one since r was written.
func (c *cluster) begin(s *Session, r Record) error {
	now := c.fleet.now()
	c.mu.Lock()
	if r.Incarnation < c.record.Incarnation {
		c.mu.Unlock()
		return ErrReplaced
	}
	c.unsaved = c.unsaved || c.record.ResourceVersion != r.ResourceVersion
	c.record.Incarnation, c.record.Term, c.record.ResourceVersion = r.Incarnation, r.Term, r.ResourceVersion
	if c.order.Incarnation != r.Incarnation && s.current() {
		c.order = segment.Order{Incarnation: r.Incarnation}
		c.inFlight.covered(c.order)
	}
	s.incarnation.Store(r.Incarnation)
	if s.current() { // otherwise a peer's stream has replaced it in the meantime
		c.last.incarnation = r.Incarnation
		c.touch(now)
		c.setAttached(true)
		c.relayAttached(s)
	}
	c.mu.Unlock()
	c.evaluate()
	return nil
}

// Synced reports whether a complete report of the stream has counted, or its first delta if it needs no complete report.
func (s *Session) Synced() bool { return s.synced }

// ClusterID returns the cluster's identity, which only ever comes from its certificate (I12).
func (s *Session) ClusterID() string { return s.cluster.ID }

// Incarnation returns the incarnation that Begin set, or 0 before Begin.
func (s *Session) Incarnation() uint64 { return s.incarnation.Load() }

// Replaced returns a channel that is closed when the stream is no longer the cluster's.
func (s *Session) Replaced() <-chan struct{} { return s.replaced }

// Known reports whether the hub knows all parts of the cluster: a complete report has counted in this hub process.
func (s *Session) Known() bool { return s.cluster.known.Load() }

// NoReceipt records that a dispatch got no receipt in time. The cluster is the last choice until a receipt arrives, or for recoverAfter.
func (s *Session) NoReceipt() {
	if s.current() {
		s.cluster.setReceipt(false, s.cluster.fleet.now())
		s.cluster.relayNoReceipt(s)
		s.cluster.evaluate()
	}
}

// EtcdRestored reports whether the stream began after the cluster's etcd was restored. Everything that its first complete report omits is
// lost.
func (s *Session) EtcdRestored() bool { return s.restored }

// Outdated reports whether the hub has lost claim keys since the stream's Welcome. Its worker then sends too few keys, and has to begin
// again.
func (s *Session) Outdated() bool {
	return !s.recovering && s.cluster.fleet.recovers(s.cluster.ID)
}

// Receipt records that a dispatch got its receipt in time.
func (s *Session) Receipt() {
	if s.current() && s.cluster.Health().LastChoice() {
		s.cluster.setReceipt(true, s.cluster.fleet.now())
		s.cluster.evaluate()
	}
}

// Close records that the stream has ended. What the cluster reported stays (I5).
func (s *Session) Close() {
	c := s.cluster
	c.mu.Lock()
	mine := c.session.CompareAndSwap(s, nil)
	if mine {
		c.setAttached(false)
		c.relayDetached(s)
	}
	c.mu.Unlock()
	s.end()
	if mine {
		c.evaluate()
	}
}

func (s *Session) end() { s.once.Do(func() { close(s.replaced) }) }

func (s *Session) current() bool { return s.cluster.session.Load() == s }

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
