// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

const (
	// relayLimit is the size up to which a relay frame is filled.
	relayLimit = 900 << 10
	// maxDeltas and maxDeltaItems bound the deltas of a cluster that wait for a peer, and the segments in them. A peer that falls behind
	// further gets a complete report instead (I10).
	maxDeltas     = 256
	maxDeltaItems = 4096
)

// Relay collects frames for one peer about the clusters that are attached to this replica. It holds one line for each cluster, so that a
// cluster with many reports delays no other, and a peer that reads slowly costs bounded memory.
type Relay struct {
	fleet *Fleet
	wake  token

	mu    sync.Mutex // a leaf
	lines map[*cluster]*line
	due   []*cluster // clusters with frames to send, each once
	hints map[memberKey]int32
	// contacts that the peer must still be sent, at most maxContacts of a cluster
	contacts map[*cluster][]*federationv1.RelayContact
}

// line holds what a peer must still be sent about one cluster. It is sent in the order of the fields.
type line struct {
	session  *Session // the session at this replica; nil: none
	detached uint64   // the ended stream that the peer must be sent; 0: none
	attached *federationv1.RelayAttached
	complete bool             // a complete report, as soon as the view is complete
	deltas   []*relayedReport // the first one may be complete
	items    int              // number of segments and removals in deltas, without a complete one
	beat     *federationv1.RelayHeartbeat
	due      bool
}

// relayedReport is the part of one report that must still be sent.
type relayedReport struct {
	sequence uint64
	digest   uint64
	complete bool
	chunk    uint32
	size     int // segments and keys
	changed  []*segment.Segment
	removed  []segment.Key
}

// NewRelay returns a Relay that collects frames for a peer until Close. It starts with all attached clusters.
func (f *Fleet) NewRelay() *Relay {
	r := &Relay{
		fleet: f, wake: newToken(), lines: map[*cluster]*line{}, contacts: map[*cluster][]*federationv1.RelayContact{},
	}
	f.relaying.Lock()
	relays := append(slices.Clone(f.relayed()), r)
	f.relays.Store(&relays)
	f.relaying.Unlock()
	for _, c := range f.sorted() {
		c.mu.Lock()
		if s := c.session.Load(); s != nil && s.via == "" && s.Incarnation() != 0 {
			r.attach(c, c.announcement(s), s)
		}
		c.mu.Unlock()
	}
	f.hintAll(r)
	return r
}

// Close stops the Relay from collecting.
func (r *Relay) Close() {
	r.fleet.relaying.Lock()
	defer r.fleet.relaying.Unlock()
	relays := slices.DeleteFunc(slices.Clone(r.fleet.relayed()), func(one *Relay) bool { return one == r })
	r.fleet.relays.Store(&relays)
}

// relayed returns the relays. A hub with one replica has none.
func (f *Fleet) relayed() []*Relay {
	if relays := f.relays.Load(); relays != nil {
		return *relays
	}
	return nil
}

// Complete queues a complete report of a cluster for the peer. It ignores a cluster that is unknown or not attached here.
func (r *Relay) Complete(clusterID string) {
	c := r.fleet.cluster(clusterID)
	if c == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lines[c]; l != nil && l.session != nil {
		l.queueComplete()
		r.push(c, l)
	}
}

// Next waits until there is a frame to send, and returns it. It is for one goroutine.
func (r *Relay) Next(ctx context.Context) (*federationv1.RelayFrame, error) {
	for {
		if frame := r.next(); frame != nil {
			return frame, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-r.wake:
		}
	}
}

// next returns the next frame, or nil if none is due. It goes round robin over the clusters, frame by frame.
func (r *Relay) next() *federationv1.RelayFrame {
	for {
		r.mu.Lock()
		frame := r.popHints() // hints come first; because they are only useful for a moment
		if frame == nil {
			frame = r.popContact()
		}
		if frame != nil {
			r.mu.Unlock()
			return frame
		}
		if len(r.due) == 0 {
			r.due = nil
			r.mu.Unlock()
			return nil
		}
		c := r.due[0]
		r.due = r.due[1:]
		l := r.lines[c]
		l.due = false
		frame, collect := l.pop(c.ID)
		if l.session == nil && frame.GetDetached() != nil {
			delete(r.lines, c)
		} else if !collect && !l.empty() {
			r.push(c, l)
		}
		r.mu.Unlock()
		if collect {
			r.collect(c)
		}
		if frame != nil {
			return frame
		}
	}
}

// push queues a cluster's line for sending. Called with the lock held.
func (r *Relay) push(c *cluster, l *line) {
	if !l.due {
		l.due = true
		r.due = append(r.due, c)
	}
	r.wake.give()
}

// collect makes a complete report from the view, if the view is complete. Otherwise the report that completes the view calls it again.
func (r *Relay) collect(c *cluster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.session.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lines[c]
	if l == nil || !l.complete || s == nil || l.session != s || !s.synced {
		return
	}
	all := &relayedReport{sequence: c.order.Sequence, digest: c.holdings.digest, complete: true}
	all.changed = make([]*segment.Segment, len(c.holdings.parts))
	for i, p := range c.holdings.parts {
		all.changed[i] = p.segment
	}
	l.complete, l.deltas, l.items = false, []*relayedReport{all}, 0
	r.push(c, l)
}

func (l *line) empty() bool {
	return l.detached == 0 && l.attached == nil && !l.complete && len(l.deltas) == 0 && l.beat == nil
}

// queueComplete replaces the queued deltas by a complete report.
func (l *line) queueComplete() { l.complete, l.deltas, l.items = true, nil, 0 }

// pop removes and returns the next frame, or nil if there is none. It returns true if a complete report must be collected first.
func (l *line) pop(id string) (frame *federationv1.RelayFrame, collect bool) {
	switch {
	case l.detached != 0:
		frame = &federationv1.RelayFrame{Body: &federationv1.RelayFrame_Detached{Detached: &federationv1.RelayDetached{
			ClusterId: id, Stream: l.detached,
		}}}
		l.detached = 0
	case l.attached != nil:
		frame = &federationv1.RelayFrame{Body: &federationv1.RelayFrame_Attached{Attached: l.attached}}
		l.attached = nil
	case l.complete:
		return l.popBeat(), true
	case len(l.deltas) > 0:
		report := l.deltas[0].next()
		if report.GetLast() {
			l.items -= l.deltas[0].items()
			l.deltas[0] = nil
			l.deltas = l.deltas[1:]
		}
		frame = &federationv1.RelayFrame{Body: &federationv1.RelayFrame_Report{Report: &federationv1.RelayReport{
			ClusterId: id, Stream: l.session.id.stream, Report: report,
		}}}
	default:
		frame = l.popBeat()
	}
	return frame, false
}

func (l *line) popBeat() *federationv1.RelayFrame {
	if l.beat == nil {
		return nil
	}
	frame := &federationv1.RelayFrame{Body: &federationv1.RelayFrame_Heartbeat{Heartbeat: l.beat}}
	l.beat = nil
	return frame
}

// items returns the number of items that a report adds to its line until it is sent in full.
func (d *relayedReport) items() int {
	if d.complete {
		return 0 // it shares its segments with the view
	}
	return d.size
}

// next removes and returns the next chunk.
func (d *relayedReport) next() *federationv1.Report {
	r := &federationv1.Report{Sequence: d.sequence, Chunk: d.chunk, Complete: d.complete}
	d.chunk++
	size := 0
	for len(d.removed) > 0 && size < relayLimit {
		key := d.removed[0].Proto()
		size += proto.Size(key) + 8
		r.Removed = append(r.Removed, key)
		d.removed = d.removed[1:]
	}
	for len(d.changed) > 0 {
		s := d.changed[0].Proto()
		n := proto.Size(s) + 8
		if size > 0 && size+n > relayLimit {
			return r
		}
		size += n
		r.Segments = append(r.Segments, s)
		d.changed = d.changed[1:]
	}
	if len(d.removed) == 0 {
		r.Last, r.Digest = true, d.digest
	}
	return r
}

// announcement describes an attached stream to peers. Called with mu held.
func (c *cluster) announcement(s *Session) *federationv1.RelayAttached {
	return &federationv1.RelayAttached{
		ClusterId: c.ID, ClusterUid: c.record.UID, Term: s.id.term, Incarnation: s.Incarnation(), Stream: s.id.stream, Version: c.version,
		Sequence: c.order.Sequence, Digest: c.holdings.digest, Complete: c.known.Load(), CertificateExpires: timestamp(s.peer.Expires),
		CertificateIssued: timestamp(s.peer.Issued), Hosting: c.hosting,
	}
}

// relayAttached tells all peers that a stream has begun here. Called with mu held.
func (c *cluster) relayAttached(s *Session) {
	if relays := c.fleet.relayed(); len(relays) > 0 {
		attached := c.announcement(s)
		for _, r := range relays {
			r.attach(c, attached, s)
		}
	}
}

func (r *Relay) attach(c *cluster, a *federationv1.RelayAttached, s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lines[c]
	if l == nil {
		l = &line{}
		r.lines[c] = l
	}
	due := l.due
	*l = line{session: s, attached: a, due: due}
	r.push(c, l)
}

// eachLine changes a stream's line at each relay and queues it for sending.
func (c *cluster) eachLine(s *Session, change func(l *line)) {
	for _, r := range c.fleet.relayed() {
		r.mu.Lock()
		if l := r.lines[c]; l != nil && l.session == s {
			change(l)
			r.push(c, l)
		}
		r.mu.Unlock()
	}
}

// relayDetached tells all peers that a stream has ended here. Called with mu held.
func (c *cluster) relayDetached(s *Session) {
	c.eachLine(s, func(l *line) { *l = line{detached: s.id.stream, due: l.due} })
}

// relayReport queues, for all peers, the changes of a report that has counted. Called with mu held.
func (c *cluster) relayReport(s *Session, report *relayedReport) {
	report.size = len(report.changed) + len(report.removed)
	report.sequence, report.digest = c.order.Sequence, c.holdings.digest
	c.eachLine(s, func(l *line) {
		own := *report // each peer gets it in chunks of its own
		l.add(&own)
	})
}

func (l *line) add(d *relayedReport) {
	switch n := d.items(); {
	case l.complete:
	case d.complete:
		l.deltas, l.items = []*relayedReport{d}, 0
	case len(l.deltas) >= maxDeltas || len(l.deltas) > 0 && l.items+n > maxDeltaItems:
		l.queueComplete()
	default:
		l.deltas, l.items = append(l.deltas, d), l.items+n
	}
}

// relayNoReceipt queues a missing receipt for all peers; because a worker that confirms nothing may send no heartbeats either.
func (c *cluster) relayNoReceipt(s *Session) {
	c.eachLine(s, func(l *line) {
		beat := &federationv1.RelayHeartbeat{ClusterId: c.ID, Stream: s.id.stream}
		if l.beat != nil {
			beat = proto.CloneOf(l.beat) // other relays share it
		}
		beat.NoReceipt, l.beat = true, beat
	})
}

// relayHeartbeat queues a heartbeat of the cluster for all peers. It replaces an earlier heartbeat that was not sent. Called with mu held.
func (c *cluster) relayHeartbeat(s *Session, h *federationv1.Heartbeat) {
	if len(c.fleet.relayed()) == 0 {
		return
	}
	beat := &federationv1.RelayHeartbeat{
		ClusterId: c.ID, Stream: s.id.stream, Degraded: c.degraded, NoReceipt: c.misses(c.fleet.now()),
	}
	beat.Heartbeat = &federationv1.Heartbeat{
		Number: h.GetNumber(), Sequence: c.order.Sequence, Digest: c.holdings.digest, ResourceVersion: h.GetResourceVersion(),
	}
	c.eachLine(s, func(l *line) { l.beat = beat })
}
