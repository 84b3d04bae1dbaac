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

// put makes seg the owner's part of its Env.
func (x *index) put(owner *cluster, seg *segment.Segment, w woken) {
	for {
		s := x.get(seg.Key)
		if s == nil {
			s = x.insert(seg.Key)
		}
		if s.put(owner, seg, w) {
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

// remove takes the owner's part out of an Env, and the Env out of the index when it was the last part.
func (x *index) remove(owner *cluster, k segment.Key, w woken) {
	sh := x.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := (*sh.slots.Load())[k]
	if s == nil || !s.remove(owner, w) {
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
	gone  bool   // out of the index: whoever still holds the slot looks again
	parts []part // by cluster id
	spare []*atomic.Int32
}

// part is one cluster's segment in the Env. Cells count claims in flight, one a member; a cell stays with its member for
// as long as the member is there, through all views.
type part struct {
	owner   *cluster
	segment *segment.Segment
	cells   []*atomic.Int32
}

func (s *slot) find(owner *cluster) (int, bool) {
	return slices.BinarySearchFunc(s.parts, owner.ID, func(p part, id string) int { return cmp.Compare(p.owner.ID, id) })
}

// put reports false when the slot is gone.
func (s *slot) put(owner *cluster, seg *segment.Segment, w woken) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false
	}
	i, had := s.find(owner)
	if !had {
		s.parts = slices.Insert(s.parts, i, part{owner: owner, segment: &segment.Segment{}})
	}
	s.parts[i] = part{owner: owner, segment: seg, cells: s.moveCells(s.parts[i], seg)}
	s.publish()
	s.announce(owner, w)
	if !had {
		s.introduce(owner, w)
	}
	return true
}

// remove reports whether the slot is gone with it.
func (s *slot) remove(owner *cluster, w woken) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, had := s.find(owner)
	if !had {
		return false
	}
	s.moveCells(s.parts[i], &segment.Segment{})
	s.parts = slices.Delete(s.parts, i, i+1)
	s.publish()
	s.announce(owner, w)
	if receiver := owner.session.Load(); receiver != nil {
		receiver.outbox.drop(s)
	}
	s.gone = len(s.parts) == 0
	return s.gone
}

// moveCells hands each member of seg the cell it had before, by name, and takes back those of members that are no more. A
// cell that is not back to zero is left to the claims that still hold it.
func (s *slot) moveCells(old part, seg *segment.Segment) []*atomic.Int32 {
	cells := make([]*atomic.Int32, len(seg.Members))
	j := 0
	for i := range seg.Members {
		for ; j < len(old.cells) && old.segment.Members[j].Name < seg.Members[i].Name; j++ {
			s.giveBack(old.cells[j])
		}
		if j < len(old.cells) && old.segment.Members[j].Name == seg.Members[i].Name {
			cells[i] = old.cells[j]
			j++
		} else {
			cells[i] = s.newCell()
		}
	}
	for ; j < len(old.cells); j++ {
		s.giveBack(old.cells[j])
	}
	return cells
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

func (s *slot) publish() {
	n := 0
	for _, p := range s.parts {
		n += len(p.cells)
	}
	candidates := make([]router.Candidate, 0, n)
	for _, p := range s.parts {
		for i := range p.cells {
			candidates = append(candidates, router.Candidate{
				Cluster: &p.owner.Cluster, Segment: p.segment, Member: &p.segment.Members[i], InFlight: p.cells[i],
			})
		}
	}
	s.view.Store(router.NewView(candidates))
}

// announce tells every other cluster that has the Env of a change in the owner's part.
func (s *slot) announce(owner *cluster, w woken) {
	for _, p := range s.parts {
		if p.owner != owner {
			p.owner.tell(s, owner, w)
		}
	}
}

// introduce tells a cluster that now has the Env of all other parts.
func (s *slot) introduce(receiver *cluster, w woken) {
	for _, p := range s.parts {
		if p.owner != receiver {
			receiver.tell(s, p.owner, w)
		}
	}
}

// snapshot copies the parts.
func (s *slot) snapshot() []part {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.parts)
}

// changed marks the owner's part as changed although the segment is the same.
func (s *slot) changed(owner *cluster, w woken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announce(owner, w)
}
