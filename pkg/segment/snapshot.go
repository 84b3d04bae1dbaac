// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"iter"
	"maps"
	"slices"
)

// Snapshot contains all segments of one cluster, and their digest. The zero value is empty and ready to use. A Snapshot is not safe for
// concurrent use; its segments are.
type Snapshot struct {
	entries map[Key]entry
	digest  uint64
}

type entry struct {
	segment *Segment
	digest  uint64
}

// Delta is the difference between two snapshots. Removals are always explicit.
type Delta struct {
	Changed []*Segment
	Removed []Key
}

// Empty reports whether the delta changes nothing.
func (d Delta) Empty() bool { return len(d.Changed) == 0 && len(d.Removed) == 0 }

// Digest returns the sum of the segments' digests. It does not depend on their order, and is 0 if there are none.
func (s *Snapshot) Digest() uint64 { return s.digest }

// Len returns the number of segments.
func (s *Snapshot) Len() int { return len(s.entries) }

// Get returns the segment of an Env, or nil.
func (s *Snapshot) Get(k Key) *Segment { return s.entries[k].segment }

// Put stores a segment, and reports whether this changed anything. Replacing a segment by one that differs only in remaining durations does
// not count as a change.
func (s *Snapshot) Put(seg *Segment) bool {
	key := seg.Key()
	old, had := s.entries[key]
	if had && old.segment.Equal(seg) {
		s.entries[key] = entry{seg, old.digest}
		return false
	}
	if s.entries == nil {
		s.entries = map[Key]entry{}
	}
	digest := seg.Digest()
	s.digest += digest - old.digest
	s.entries[key] = entry{seg, digest}
	return true
}

// Remove removes a segment, and reports whether it existed.
func (s *Snapshot) Remove(k Key) bool {
	old, had := s.entries[k]
	if had {
		s.digest -= old.digest
		delete(s.entries, k)
	}
	return had
}

// Apply applies the removals, then the changes. It returns those that had an effect.
func (s *Snapshot) Apply(d Delta) Delta {
	var effective Delta
	for _, k := range d.Removed {
		if s.Remove(k) {
			effective.Removed = append(effective.Removed, k)
		}
	}
	for _, seg := range d.Changed {
		if s.Put(seg) {
			effective.Changed = append(effective.Changed, seg)
		}
	}
	return effective
}

// All ranges over the segments in no particular order.
func (s *Snapshot) All() iter.Seq2[Key, *Segment] {
	return func(yield func(Key, *Segment) bool) {
		for k, e := range s.entries {
			if !yield(k, e.segment) {
				return
			}
		}
	}
}

// Keys returns the keys of all segments, in order.
func (s *Snapshot) Keys() []Key {
	return slices.SortedFunc(maps.Keys(s.entries), Key.Compare)
}

// Clone returns an independent copy of the snapshot. The segments are shared.
func (s *Snapshot) Clone() *Snapshot {
	return &Snapshot{entries: maps.Clone(s.entries), digest: s.digest}
}

// Diff returns the delta that turns old into new, in key order.
func Diff(old, new *Snapshot) Delta {
	var d Delta
	for k := range old.entries {
		if _, still := new.entries[k]; !still {
			d.Removed = append(d.Removed, k)
		}
	}
	for k, e := range new.entries {
		if was := old.entries[k].segment; was == nil || !was.Equal(e.segment) {
			d.Changed = append(d.Changed, e.segment)
		}
	}
	slices.SortFunc(d.Removed, Key.Compare)
	slices.SortFunc(d.Changed, func(a, b *Segment) int { return a.Key().Compare(b.Key()) })
	return d
}
