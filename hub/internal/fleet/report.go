// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

// assembly collects the chunks of one report. The hub parses a report only after all of it has arrived.
type assembly struct {
	active   bool
	sequence uint64
	complete bool
	index    bool // keys is the whole key index although the report is not complete
	next     uint32
	size     int
	segments []*federationv1.EnvSegment
	removed  []*federationv1.EnvKey
	keys     []*federationv1.KeyHolder

	tooLarge error // the whole report is dropped
	noKeys   error // why its key index is dropped
}

// add adds a chunk, and returns false if the chunk does not continue the report. Chunk 0 always starts a new report.
func (a *assembly) add(r *federationv1.Report, limits *Limits) bool {
	if r.GetChunk() == 0 {
		*a = assembly{active: true, sequence: r.GetSequence(), complete: r.GetComplete(), index: r.GetIndex()}
	}
	if !a.active || r.GetSequence() != a.sequence || r.GetComplete() != a.complete || r.GetChunk() != a.next || a.next >= maxChunks {
		*a = assembly{}
		return false
	}
	a.next++
	if a.tooLarge == nil {
		a.take(r, limits)
	}
	return true
}

// take keeps a chunk that fits into the budget. A report of one chunk is bounded by its frame.
func (a *assembly) take(r *federationv1.Report, limits *Limits) {
	if a.next > 1 || !r.GetLast() {
		if a.size += sizeOf(r); a.size > limits.Bytes {
			a.tooLarge = fmt.Errorf("%w of %d bytes in a report", errLimit, limits.Bytes)
			a.segments, a.removed, a.keys = nil, nil, nil
			return
		}
	}
	a.segments = append(a.segments, r.GetSegments()...)
	a.removed = append(a.removed, r.GetRemoved()...)
	// A key index is kept in full or not at all: an omitted key would count as lost.
	if a.keys = append(a.keys, r.GetKeys()...); len(a.keys) > limits.Keys {
		a.noKeys = fmt.Errorf("%w of %d claim keys", errLimit, limits.Keys)
	}
	if a.noKeys != nil || !a.complete && !a.index {
		a.keys = nil
	}
}

// asking limits requests for complete reports if a digest never matches (the other end encodes differently).
type asking struct {
	asked bool
	at    time.Duration
	pause time.Duration
}

const (
	askPause    = 10 * time.Second
	maxAskPause = 5 * time.Minute
)

func (a *asking) ask(now time.Duration) bool {
	if a.asked && now-a.at < a.pause {
		return false
	}
	a.asked, a.at, a.pause = true, now, max(a.pause, askPause)
	return true
}

func (a *asking) failed(now time.Duration) {
	a.asked, a.at, a.pause = true, now, min(max(2*a.pause, 3*askPause), maxAskPause)
}

// The results of a report, a label of atoll_hub_reports_total.
const (
	resultApplied   = "applied"
	resultRepeated  = "repeated"
	resultBroken    = "broken"    // a chunk is missing
	resultInvalid   = "invalid"   // it names an Env twice
	resultTooLarge  = "too-large" // over the cluster's limit
	resultUnsynced  = "unsynced"  // a delta before the stream's complete report
	resultUnordered = "unordered" // before Begin, or from a replaced stream
)

// Report applies one chunk. It returns nil until the last chunk has arrived, and for a stream that was replaced.
func (s *Session) Report(r *federationv1.Report) *federationv1.ReportAck {
	c := s.cluster
	s.keys = nil
	if !s.current() || s.Incarnation() == 0 {
		c.count(resultUnordered)
		return nil
	}
	c.touch(c.fleet.now())
	if !s.assembly.add(r, &c.fleet.limits) {
		c.count(resultBroken)
		return &federationv1.ReportAck{Sequence: r.GetSequence(), SendComplete: true}
	}
	if !r.GetLast() {
		return nil
	}
	whole := s.assembly
	s.assembly = assembly{}
	if whole.tooLarge != nil {
		return s.refuse(r, resultTooLarge, whole.tooLarge)
	}
	ack, err := s.take(&whole, r.GetDigest())
	if err != nil {
		return s.refuse(r, resultInvalid, err)
	}
	c.evaluate()
	return ack
}

// Keys returns the key index of the report that has just counted, and false if that report had no whole index. It never returns the index
// of a report that did not count.
func (s *Session) Keys() (keys []*federationv1.KeyHolder, whole bool) {
	if s.keys == nil {
		return nil, false
	}
	return *s.keys, true
}

// refuse drops a report that the worker would only send again unchanged. It therefore requests complete reports with back-off.
func (s *Session) refuse(r *federationv1.Report, result string, why error) *federationv1.ReportAck {
	c := s.cluster
	c.count(result)
	c.mu.Lock()
	c.degrade("a report was refused: " + why.Error())
	c.mu.Unlock()
	return &federationv1.ReportAck{Sequence: r.GetSequence(), SendComplete: s.askFor(result, c.fleet.now())}
}

// degrade records why part of the cluster's input does not count; "" means that all of it counts. Called with mu held.
func (c *cluster) degrade(why string) {
	if c.degraded == why {
		return
	}
	c.degraded = why
	c.fleet.log.Info("What a cluster reports does not count in full", "cluster", c.ID, "reason", cmp.Or(why, "it does again"))
}

// manySegments is the size from which a report is milliseconds of work and takes a slot: after a restart of the hub all reports arrive at
// once, and would take every processor from the claims that arrive with them. A report never blocks while it holds its slot.
const manySegments = 100

// take merges a whole report into the view. A report counts only if it is newer than the last one that counted. Every stream starts with a
// complete report, or with deltas if the Welcome allowed it.
func (s *Session) take(r *assembly, digest uint64) (*federationv1.ReportAck, error) {
	c, now := s.cluster, s.cluster.fleet.now()
	if len(r.segments) > manySegments {
		c.fleet.merges <- struct{}{}
		defer func() { <-c.fleet.merges }()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u, err := c.read(r.segments, r.removed)
	switch {
	case err != nil:
		return nil, err
	case !s.current():
		c.count(resultUnordered)
		return nil, nil
	}
	ack := &federationv1.ReportAck{Sequence: r.sequence}
	order := segment.Order{Incarnation: s.Incarnation(), Sequence: r.sequence}
	switch {
	case !order.After(c.order) && !s.again(r, order):
		c.count(resultRepeated)
		ack.SendComplete = !s.synced
		return ack, nil
	case !r.complete && !s.synced && (!s.deltas || !r.index):
		c.count(resultUnsynced)
		ack.SendComplete = true
		return ack, nil
	}
	if r.complete {
		u.removed = c.leftOut()
	}
	relayed, unsaved := c.relayedReportOf(s, r, &u), c.unsaved
	c.publish(u)
	c.updateDegraded(r, &u.refused)
	c.order = order
	c.inFlight.covered(order)
	if s.via != "" {
		c.unsaved = unsaved // the replica to which the cluster is attached saves it
	} else if relayed != nil {
		c.relayReport(s, relayed)
	}
	c.count(resultApplied)
	if r.complete || r.index {
		s.becomeSynced()
		if r.noKeys == nil {
			keys := r.keys // a pointer into the report would keep all its segments in memory until the next report
			s.keys = &keys
		}
	}
	ack.SendComplete = s.reconcile(r.complete, digest, now)
	return ack, nil
}

// again reports whether a peer made this complete report from its view, at the order of this replica's view.
func (s *Session) again(r *assembly, order segment.Order) bool {
	return s.via != "" && r.complete && order == s.cluster.order
}

// relayedReportOf returns a report's changes for the peers, or nil if there are no peers. Peers that have the previous view need no
// complete report. Equal segments are included if they are saturated: they tell peers how long that lasts. Called with mu held, before the
// report counts.
func (c *cluster) relayedReportOf(s *Session, r *assembly, u *update) *relayedReport {
	if s.via != "" || len(c.fleet.relayed()) == 0 {
		return nil
	}
	out := &relayedReport{complete: r.complete && !c.known.Load()} // no peer has a view before the first one
	for _, ch := range u.changed {
		if !r.complete || out.complete || ch.part == nil || !ch.part.segment.Equal(ch.segment) || saturated(ch.segment) {
			out.changed = append(out.changed, ch.segment)
		}
	}
	for _, p := range u.removed {
		out.removed = append(out.removed, *p.slot.key)
	}
	return out
}

func saturated(s *segment.Segment) bool {
	return slices.ContainsFunc(s.Members(), func(m segment.Member) bool { return m.SaturatedFor > 0 })
}

// updateDegraded records whether a report counts in full. Only a complete report shows that nothing is omitted any more. Called with mu
// held.
func (c *cluster) updateDegraded(r *assembly, refused *refusals) {
	c.fleet.metrics.segments.Add(float64(refused.number))
	switch {
	case r.noKeys != nil:
		c.degrade("its key index was refused: " + r.noKeys.Error())
	case refused.number > 0:
		c.degrade(fmt.Sprintf("%d of its segments are left out, the first: %s", refused.number, refused.first))
	case r.complete:
		c.degrade("")
	}
}

// leftOut returns the parts that a complete report removes. Called with mu held.
func (c *cluster) leftOut() (parts []*part) {
	var keys []segment.Key
	keys, c.suspects = decideRemovals(c.holdings.unnamed(), len(c.holdings.parts), c.suspects)
	for _, k := range keys {
		p, _ := c.fleet.index.get(k).look(c)
		parts = append(parts, p)
	}
	return parts
}

// reconcile compares digests after a report and returns whether to request a complete one. Called with mu held.
func (s *Session) reconcile(complete bool, digest uint64, now time.Duration) bool {
	c := s.cluster
	switch {
	case complete && len(c.suspects) > 0:
		c.fleet.metrics.asked.WithLabelValues("mass-removal").Inc()
		c.fleet.log.Info("A complete report omits too many Envs; a second one must confirm that", "cluster", c.ID, "envs", len(c.suspects))
		return true
	case digest == c.holdings.digest:
		s.asking = asking{}
		return false
	case complete:
		c.fleet.log.Info("The digest of a complete report does not match", "cluster", c.ID)
		s.asking.failed(now)
		return false
	default:
		return s.askFor("digest", now)
	}
}

func (s *Session) askFor(cause string, now time.Duration) bool {
	if !s.asking.ask(now) {
		return false
	}
	s.cluster.fleet.metrics.asked.WithLabelValues(cause).Inc()
	return true
}

// publish applies the changes to the views of the Envs and marks them for the other clusters. Called with mu held.
func (c *cluster) publish(u update) {
	w := woken{}
	defer w.up()
	gone := make([]segment.Key, 0, len(u.removed))
	for _, p := range u.removed {
		gone = append(gone, *p.slot.key)
		c.fleet.index.remove(p, w)
		c.holdings.drop(p)
	}
	for _, ch := range u.changed {
		c.put(ch, w)
	}
	c.removeTombstones(u.changed)
	c.addTombstones(gone)
}

// put sets the segment of the cluster's part of an Env. Segments that differ only in remaining durations are equal. An equal segment is not
// kept unless a member is saturated; because views keep the old one, and a new leader's complete report would double the cluster's memory.
func (c *cluster) put(ch change, w woken) {
	p := ch.part
	if p != nil && p.segment.Equal(ch.segment) {
		if saturated(p.segment) || saturated(ch.segment) {
			p.slot.refresh(p, ch.segment)
		}
		return
	}
	if p == nil {
		p = &part{owner: c, named: c.holdings.reports}
		c.holdings.insert(p)
	}
	digest := ch.segment.Digest()
	h := &c.holdings
	h.digest += digest - p.digest
	h.bytes += ch.size - int(p.size)
	h.members += len(ch.segment.Members())
	if p.segment != nil {
		h.members -= len(p.segment.Members())
	}
	p.digest, p.size = digest, uint16(ch.size)
	c.fleet.index.put(p, ch.segment, w)
	delete(c.suspects, ch.segment.Key())
}

// becomeSynced opens the stream's outbox: from now on the stream gets other clusters' segments. If this is the cluster's first complete
// report to this hub process, all other clusters get a complete message about it. Called with mu held.
func (s *Session) becomeSynced() {
	c := s.cluster
	c.met.Store(true) // for a relayed session: the peer compared the Hello with the shared store
	if !s.synced {
		s.synced = true
		if s.via == "" { // for a relayed session the peer sends the worker foreign segments
			defer s.outbox.open(c)
		}
	}
	if !c.known.Swap(true) {
		c.queueComplete()
	}
}

// Heartbeat acknowledges a heartbeat and compares digests.
func (s *Session) Heartbeat(h *federationv1.Heartbeat) *federationv1.HeartbeatAck {
	c, now := s.cluster, s.cluster.fleet.now()
	ack := &federationv1.HeartbeatAck{Number: h.GetNumber()}
	if !s.current() || s.Incarnation() == 0 {
		return ack
	}
	c.touch(now)
	c.inFlight.heartbeat()
	c.mu.Lock()
	ack.EtcdRestored = s.revised(h)
	behind := h.GetSequence() > c.order.Sequence
	differs := h.GetSequence() == c.order.Sequence && h.GetDigest() != c.holdings.digest
	if s.via == "" {
		c.relayHeartbeat(s, h)
	}
	c.mu.Unlock()
	arriving := s.assembly.active && s.assembly.sequence == h.GetSequence()
	switch {
	case behind && !arriving:
		ack.SendComplete = s.askFor("missing", now)
	case differs && s.synced:
		ack.SendComplete = s.askFor("digest", now)
	}
	c.evaluate()
	return ack
}

// revised records etcd's revision from a heartbeat and reports whether it went back. In that case the recorded revision stays, for the
// hello of the next term. An overtaken heartbeat does not count. Called with mu held.
func (s *Session) revised(h *federationv1.Heartbeat) (restored bool) {
	if h.GetNumber() <= s.beat {
		return false
	}
	s.beat = h.GetNumber()
	r := &s.cluster.record
	if wentBack(h.GetResourceVersion(), r.ResourceVersion) {
		s.cluster.fleet.log.Info("A cluster's etcd was set back under its worker", "cluster", s.cluster.ID,
			"at", h.GetResourceVersion(), "before", r.ResourceVersion)
		return true
	}
	if h.GetResourceVersion() > r.ResourceVersion {
		r.ResourceVersion = h.GetResourceVersion()
		s.cluster.unsaved = s.cluster.unsaved || s.via == ""
	}
	return false
}

func (c *cluster) count(result string) { c.fleet.metrics.reports.WithLabelValues(result).Inc() }
