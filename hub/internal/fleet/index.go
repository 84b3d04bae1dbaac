// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

// Many shards make the copy for a new Env cheap.
const shardCount = 1024

// index finds the slot of an Env. Readers take no lock: a shard's content is immutable and replaced as a whole when an Env appears or
// disappears; more frequent changes happen in the slot. A slice ordered by hash takes a third of a map's memory, and is copied as one block
// of memory.
type index struct {
	seed   maphash.Seed
	shards [shardCount]shard
}

type shard struct {
	mu    sync.Mutex
	slots atomic.Pointer[[]hashed]
}

type hashed struct {
	hash uint64
	slot *slot
}

func (x *index) init() {
	x.seed = maphash.MakeSeed()
	for i := range x.shards {
		x.shards[i].slots.Store(&[]hashed{})
	}
}

func (x *index) shard(k segment.Key) (sh *shard, hash uint64) {
	hash = maphash.String(x.seed, k.Name) ^ maphash.String(x.seed, k.Namespace)<<1
	return &x.shards[hash%shardCount], hash
}

func (x *index) get(k segment.Key) *slot {
	sh, hash := x.shard(k)
	slots := *sh.slots.Load()
	if at, has := find(slots, k, hash); has {
		return slots[at].slot
	}
	return nil
}

// find returns the position of an Env, or the position at which to insert it.
func find(slots []hashed, k segment.Key, hash uint64) (at int, has bool) {
	at, _ = slices.BinarySearchFunc(slots, hash, func(h hashed, to uint64) int { return cmp.Compare(h.hash, to) })
	for ; at < len(slots) && slots[at].hash == hash; at++ {
		if *slots[at].slot.key == k {
			return at, true
		}
	}
	return at, false
}

func (x *index) view(k segment.Key) *router.View {
	if s := x.get(k); s != nil {
		return s.view.Load()
	}
	return nil
}

// put sets the segment of a part, new or not. Called with the owner's mu held.
func (x *index) put(p *part, seg *segment.Segment, w woken) {
	if p.slot != nil {
		p.slot.put(p, seg, w)
		return
	}
	for {
		s := x.get(seg.Key())
		if s == nil {
			s = x.insert(seg.SharedKey())
		}
		if s.put(p, seg, w) {
			return
		}
	}
}

func (x *index) insert(k *segment.Key) *slot {
	sh, hash := x.shard(*k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slots := *sh.slots.Load()
	at, has := find(slots, *k, hash)
	if has {
		return slots[at].slot
	}
	s := &slot{key: k}
	next := slices.Concat(slots[:at], []hashed{{hash, s}}, slots[at:])
	sh.slots.Store(&next)
	return s
}

// remove removes a part from its Env, and removes the Env from the index if this was its last part.
func (x *index) remove(p *part, w woken) {
	sh, hash := x.shard(*p.slot.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !p.slot.remove(p, w) {
		return
	}
	slots := *sh.slots.Load()
	at, _ := find(slots, *p.slot.key, hash)
	next := slices.Concat(slots[:at], slots[at+1:])
	sh.slots.Store(&next)
}

// keys lists the Envs of a namespace (empty: all) in order.
func (x *index) keys(namespace string) []segment.Key {
	var out []segment.Key
	for i := range x.shards {
		for _, h := range *x.shards[i].slots.Load() {
			if k := *h.slot.key; namespace == "" || namespace == k.Namespace {
				out = append(out, k)
			}
		}
	}
	slices.SortFunc(out, segment.Key.Compare)
	return out
}

// slot is one Env. Readers load the view. A writer that changes a part holds the lock while it builds a new view.
type slot struct {
	view atomic.Pointer[router.View]
	key  *segment.Key

	mu    sync.Mutex
	parts []*part // by cluster id
	cells *[cellBlock]atomic.Int32
	used  uint8 // of cells
	gone  bool  // removed from the index: a caller that still holds the slot looks it up again
}

func (s *slot) find(owner *cluster) (int, bool) {
	return slices.BinarySearchFunc(s.parts, owner.ID, func(p *part, id string) int { return cmp.Compare(p.owner.ID, id) })
}

// look returns a cluster's part and its segment. If the cluster has no part, it returns nil and another cluster's segment, if there is one.
func (s *slot) look(owner *cluster) (*part, *segment.Segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, has := s.find(owner); has {
		return s.parts[i], s.parts[i].segment
	}
	if len(s.parts) > 0 {
		return nil, s.parts[0].segment
	}
	return nil, nil
}

// put sets the segment of a part. It returns false if the slot is gone.
func (s *slot) put(p *part, seg *segment.Segment, w woken) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false
	}
	introduce := p.slot == nil
	if introduce {
		i, _ := s.find(p.owner)
		s.parts = slices.Insert(s.parts, i, p)
		p.slot = s
	}
	at := notedCalm
	if segment.Edge(p.segment, seg) {
		at = notedUrgent
	}
	if sameMembers(p.segment, seg) {
		s.republish(p, seg)
	} else {
		s.publish(p, seg)
	}
	s.announce(p, at, w)
	if introduce {
		s.introduce(p.owner, w)
	}
	return true
}

// refresh replaces a segment by an equal one. Views keep the old one.
func (s *slot) refresh(p *part, seg *segment.Segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.segment = seg
}

// remove removes a part and reports whether the slot is gone with it.
func (s *slot) remove(p *part, w woken) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := s.find(p.owner)
	s.parts = slices.Delete(s.parts, i, i+1)
	s.publish(p, nil)
	s.announce(p, notedUrgent, w)
	if receiver := p.owner.session.Load(); receiver != nil {
		receiver.outbox.drop(s)
	}
	s.gone = len(s.parts) == 0
	return s.gone
}

func sameMembers(was, is *segment.Segment) bool {
	return was != nil && slices.EqualFunc(was.Members(), is.Members(), func(a, b segment.Member) bool { return a.Name == b.Name })
}

// publish builds and stores the view in which a part has its next segment. It uses the scratch space of the part's owner, whose mu is held.
func (s *slot) publish(changed *part, next *segment.Segment) {
	was, candidates := s.view.Load(), changed.owner.scratch[:0]
	for _, p := range s.parts {
		first := int32(len(candidates))
		if p == changed {
			candidates = s.candidates(candidates, was, p, next)
			p.segment = next
		} else { // another owner's part: the slot's mu is enough to read its segment
			candidates = s.candidates(candidates, was, p, p.segment)
		}
		p.first = first
	}
	s.show(changed, router.NewView(candidates), candidates)
}

// republish is publish for a part whose members stay the same.
func (s *slot) republish(p *part, next *segment.Segment) {
	was := s.view.Load()
	candidates := s.candidates(p.owner.scratch[:0], was, p, next)
	p.segment = next
	s.show(p, was.Replace(int(p.first), candidates), candidates)
}

func (s *slot) show(p *part, v *router.View, candidates []router.Candidate) {
	s.view.Store(v)
	clear(candidates)
	p.owner.scratch = candidates[:0]
}

// candidates appends the candidates of a part's next members. Views hold the counters of claims in flight. A member that existed before, by
// name, keeps its counter whatever else changes.
func (s *slot) candidates(out []router.Candidate, was *router.View, p *part, next *segment.Segment) []router.Candidate {
	var had []segment.Member
	if p.segment != nil {
		had = p.segment.Members()
	}
	j := 0
	for i, m := range next.Members() {
		c := router.Candidate{Cluster: &p.owner.Cluster, Segment: next, Index: i}
		for j < len(had) && had[j].Name < m.Name {
			j++
		}
		if j < len(had) && had[j].Name == m.Name {
			c.InFlight = was.Candidate(int(p.first) + j).InFlight
		} else {
			c.InFlight = s.newCell()
		}
		out = append(out, c)
	}
	return out
}

const cellBlock = 4

// newCell returns a counter from a block, so that a pick finds the counters of one Env on few cache lines. No counter is reused: a claim
// may still hold it.
func (s *slot) newCell() *atomic.Int32 {
	if s.cells == nil || s.used == cellBlock {
		s.cells, s.used = new([cellBlock]atomic.Int32), 0
	}
	s.used++
	return &s.cells[s.used-1]
}

// announce marks a changed part in the outbox of every other cluster that has the Env.
func (s *slot) announce(changed *part, at noted, w woken) {
	if changed.noted >= at {
		return
	}
	changed.noted = at
	for _, p := range s.parts {
		if p != changed {
			p.owner.markChanged(s, changed.owner, at, w)
		}
	}
}

// introduce marks all other parts in the outbox of a cluster that now has the Env.
func (s *slot) introduce(receiver *cluster, w woken) {
	for _, p := range s.parts {
		if p.owner != receiver {
			receiver.markChanged(s, p.owner, notedUrgent, w)
		}
	}
}

// shown is a part's content at one moment.
type shown struct {
	owner   *cluster
	segment *segment.Segment
}

func (s *slot) snapshot() []shown {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]shown, len(s.parts))
	for i, p := range s.parts {
		out[i] = shown{p.owner, p.segment}
	}
	return out
}

// changed announces the owner's part although its segment is the same.
func (s *slot) changed(owner *cluster, w woken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, has := s.find(owner); has {
		s.announce(s.parts[i], notedUrgent, w)
	}
}
