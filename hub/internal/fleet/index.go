// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

// Many shards keep the copy that a new Env costs small.
const shardCount = 1024

// index finds the slot of an Env. Readers take no lock: a shard's map is immutable and replaced as a whole when an Env
// appears or goes; everything more frequent happens in the slot.
type index struct {
	seed   maphash.Seed
	shards [shardCount]shard
}

type shard struct {
	mu    sync.Mutex
	slots atomic.Pointer[map[segment.Key]*slot]
}

func (x *index) init() {
	x.seed = maphash.MakeSeed()
	for i := range x.shards {
		x.shards[i].slots.Store(&map[segment.Key]*slot{})
	}
}

func (x *index) shard(k segment.Key) *shard {
	h := maphash.String(x.seed, k.Name) ^ maphash.String(x.seed, k.Namespace)<<1
	return &x.shards[h%shardCount]
}

func (x *index) get(k segment.Key) *slot { return (*x.shard(k).slots.Load())[k] }

func (x *index) view(k segment.Key) *router.View {
	if s := x.get(k); s != nil {
		return s.view.Load()
	}
	return nil
}

// put gives a part, new or not, its segment. The owner's mu is held.
func (x *index) put(p *part, seg *segment.Segment, w woken) {
	if p.slot != nil {
		p.slot.put(p, seg, w)
		return
	}
	for {
		s := x.get(seg.Key)
		if s == nil {
			s = x.insert(seg.Key)
		}
		if s.put(p, seg, w) {
			return
		}
	}
}

func (x *index) insert(k segment.Key) *slot {
	sh := x.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s := (*sh.slots.Load())[k]; s != nil {
		return s
	}
	s := &slot{key: k}
	next := maps.Clone(*sh.slots.Load())
	next[k] = s
	sh.slots.Store(&next)
	return s
}

// remove takes a part out of its Env, and the Env out of the index when it was the last part.
func (x *index) remove(p *part, w woken) {
	k := p.slot.key
	sh := x.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !p.slot.remove(p, w) {
		return
	}
	next := maps.Clone(*sh.slots.Load())
	delete(next, k)
	sh.slots.Store(&next)
}

// keys lists the Envs of a namespace (empty: all) in order.
func (x *index) keys(namespace string) []segment.Key {
	var out []segment.Key
	for i := range x.shards {
		for k := range *x.shards[i].slots.Load() {
			if namespace == "" || namespace == k.Namespace {
				out = append(out, k)
			}
		}
	}
	slices.SortFunc(out, segment.Key.Compare)
	return out
}

// slot is one Env. Readers load the view; who changes a part takes the lock, for as long as it takes to build a view.
type slot struct {
	view atomic.Pointer[router.View]
	key  segment.Key

	mu    sync.Mutex
	gone  bool    // out of the index: whoever still holds the slot looks again
	parts []*part // by cluster id
	spare []*atomic.Int32
}

func (s *slot) find(owner *cluster) (int, bool) {
	return slices.BinarySearchFunc(s.parts, owner.ID, func(p *part, id string) int { return cmp.Compare(p.owner.ID, id) })
}

// look answers a cluster's part with its segment; when there is none, nil with some other's segment, if there is one.
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

// put reports false when the slot is gone.
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
	same, hurry := s.moveCells(p, seg.Members), segment.Edge(p.segment, seg)
	p.segment = seg
	if same {
		s.republish(p)
	} else {
		s.publish(p.owner)
	}
	s.announce(p.owner, hurry, w)
	if introduce {
		s.introduce(p.owner, w)
	}
	return true
}

// refresh replaces a segment by one that says the same: views keep the old one.
func (s *slot) refresh(p *part, seg *segment.Segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.segment = seg
}

// remove reports whether the slot is gone with it.
func (s *slot) remove(p *part, w woken) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := s.find(p.owner)
	s.moveCells(p, nil)
	s.parts = slices.Delete(s.parts, i, i+1)
	s.publish(p.owner)
	s.announce(p.owner, true, w)
	if receiver := p.owner.session.Load(); receiver != nil {
		receiver.outbox.drop(s)
	}
	s.gone = len(s.parts) == 0
	return s.gone
}

// moveCells hands each of a part's next members the cell it had before, by name, and takes back those of members that are
// no more. A cell that is not back to zero is left to the claims that still hold it. It reports whether all stayed.
func (s *slot) moveCells(p *part, next []segment.Member) (same bool) {
	if p.segment != nil && slices.EqualFunc(p.segment.Members, next, func(a, b segment.Member) bool { return a.Name == b.Name }) {
		return true
	}
	cells := make([]*atomic.Int32, len(next))
	j := 0
	for i := range next {
		for ; j < len(p.cells) && p.segment.Members[j].Name < next[i].Name; j++ {
			s.giveBack(p.cells[j])
		}
		if j < len(p.cells) && p.segment.Members[j].Name == next[i].Name {
			cells[i] = p.cells[j]
			j++
		} else {
			cells[i] = s.newCell()
		}
	}
	for ; j < len(p.cells); j++ {
		s.giveBack(p.cells[j])
	}
	p.cells = cells
	return false
}

func (s *slot) giveBack(cell *atomic.Int32) {
	if cell.Load() == 0 {
		s.spare = append(s.spare, cell)
	}
}

const cellBlock = 4

// newCell takes cells from blocks, so that a pick finds those of one Env on few cache lines.
func (s *slot) newCell() *atomic.Int32 {
	if len(s.spare) == 0 {
		block := new([cellBlock]atomic.Int32)
		s.spare = make([]*atomic.Int32, 0, cellBlock)
		for i := range block {
			s.spare = append(s.spare, &block[len(block)-1-i])
		}
	}
	cell := s.spare[len(s.spare)-1]
	s.spare = s.spare[:len(s.spare)-1]
	return cell
}

// publish builds the view in the room that a cluster lends, whose mu is held.
func (s *slot) publish(lender *cluster) {
	candidates := lender.scratch[:0]
	for _, p := range s.parts {
		p.first = len(candidates)
		candidates = p.candidates(candidates)
	}
	s.view.Store(router.NewView(candidates))
	clear(candidates)
	lender.scratch = candidates[:0]
}

// republish is publish for a part whose members are the same, and all others' as well.
func (s *slot) republish(p *part) {
	candidates := p.candidates(p.owner.scratch[:0])
	s.view.Store(s.view.Load().Replace(p.first, candidates))
	clear(candidates)
	p.owner.scratch = candidates[:0]
}

func (p *part) candidates(out []router.Candidate) []router.Candidate {
	for i := range p.cells {
		out = append(out, router.Candidate{
			Cluster: &p.owner.Cluster, Segment: p.segment, Member: &p.segment.Members[i], InFlight: p.cells[i],
		})
	}
	return out
}

// announce tells every other cluster that has the Env of a change in the owner's part.
func (s *slot) announce(owner *cluster, hurry bool, w woken) {
	for _, p := range s.parts {
		if p.owner != owner {
			p.owner.tell(s, owner, hurry, w)
		}
	}
}

// introduce tells a cluster that now has the Env of all other parts.
func (s *slot) introduce(receiver *cluster, w woken) {
	for _, p := range s.parts {
		if p.owner != receiver {
			receiver.tell(s, p.owner, true, w)
		}
	}
}

// shown is what a part says at one moment.
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

// changed marks the owner's part as changed although the segment is the same.
func (s *slot) changed(owner *cluster, w woken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announce(owner, true, w)
}
