// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"math"
	"math/rand"
	"testing"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
)

// seedReports are reports as workers send them, and as none does.
func seedReports() []*federationv1.Report {
	member := func(name string) *federationv1.MemberSegment {
		return &federationv1.MemberSegment{Name: name, State: federationv1.MemberState_ACTIVE, Idle: 3, ReadyIdle: 2, Image: "img:1",
			CanGrow: true}
	}
	key := func(name string) *federationv1.EnvKey { return &federationv1.EnvKey{Namespace: "default", Name: name} }
	return []*federationv1.Report{
		{},
		{Sequence: 1, Last: true, Complete: true, Segments: []*federationv1.EnvSegment{
			{Key: key("a"), Uid: "u", Generation: 4, Members: []*federationv1.MemberSegment{member("x"), member("w")}}, {Key: key("b")},
		}},
		{Sequence: 2, Last: true, Removed: []*federationv1.EnvKey{key("a")},
			Segments: []*federationv1.EnvSegment{{Key: key("c"), DefaultMultiplier: -1}}},
		{Segments: []*federationv1.EnvSegment{{Key: key("a"), Members: []*federationv1.MemberSegment{member("x"), member("x")}}}},
		{Segments: []*federationv1.EnvSegment{{Key: key("a")}}, Removed: []*federationv1.EnvKey{key("a")}},
		{Segments: []*federationv1.EnvSegment{{Key: key("a"), Members: []*federationv1.MemberSegment{{Name: "m", State: 99, Idle: -5,
			Pending: 1 << 30}}}}},
		{Segments: []*federationv1.EnvSegment{{Key: key("a"), Members: []*federationv1.MemberSegment{
			{Name: "m", Idle: math.MaxInt32, Running: math.MaxInt32, Desired: math.MaxInt32, Pending: math.MaxInt32}, member("n"),
		}}}},
		{Segments: []*federationv1.EnvSegment{nil, {Key: &federationv1.EnvKey{Name: "no namespace"}}}},
	}
}

// A report is read in full or not at all; its content may be repeated, in any order; and the digest always matches the content.
func FuzzReports(f *testing.F) {
	seeds := seedReports()
	for i, r := range seeds {
		first, err := proto.Marshal(r)
		must.Succeed(f, err)
		second, err := proto.Marshal(seeds[(i+1)%len(seeds)])
		must.Succeed(f, err)
		f.Add(first, second, int64(i))
	}
	f.Fuzz(func(t *testing.T, first, second []byte, seed int64) {
		deltas := []Delta{read(t, first), read(t, second)}
		var s Snapshot
		for _, d := range deltas {
			s.Apply(d)
			checkDigest(t, &s)
			if again := s.Apply(d); !again.Empty() {
				t.Fatalf("the second time it changes %+v", again)
			}
			same := s.Clone()
			same.Apply(shuffled(d, seed))
			other := Snapshot{}
			for _, seg := range shuffled(Delta{Changed: all(&s)}, seed).Changed {
				other.Put(seg)
			}
			if same.Digest() != s.Digest() || other.Digest() != s.Digest() || other.Len() != s.Len() {
				t.Fatal("the order makes a difference")
			}
		}
		checkTotals(t, &s)
	})
}

func read(t *testing.T, data []byte) Delta {
	t.Helper()
	r := &federationv1.Report{}
	if proto.Unmarshal(data, r) != nil {
		return Delta{}
	}
	var d Delta
	named := map[Key]bool{}
	for _, p := range r.GetSegments() {
		seg, err := FromProto(p)
		switch {
		case err != nil && (seg != nil || !errors.Is(err, ErrInvalid)):
			t.Fatalf("refused with %v, and still it says %+v", err, seg)
		case err != nil || named[seg.Key()]:
			return Delta{}
		}
		named[seg.Key()] = true
		d.Changed = append(d.Changed, seg)
	}
	for _, p := range r.GetRemoved() {
		k, err := KeyFromProto(p)
		if err != nil || named[k] {
			return Delta{}
		}
		named[k] = true
		d.Removed = append(d.Removed, k)
	}
	for _, seg := range d.Changed {
		again, err := FromProto(seg.Proto())
		if err != nil || !again.Equal(seg) || again.Digest() != seg.Digest() {
			t.Fatalf("%+v comes back as %+v (%v)", seg, again, err)
		}
	}
	return d
}

func all(s *Snapshot) (out []*Segment) {
	for _, k := range s.Keys() {
		out = append(out, s.Get(k))
	}
	return out
}

func shuffled(d Delta, seed int64) Delta {
	r := rand.New(rand.NewSource(seed))
	out := Delta{Changed: append([]*Segment(nil), d.Changed...), Removed: append([]Key(nil), d.Removed...)}
	r.Shuffle(len(out.Changed), func(i, j int) { out.Changed[i], out.Changed[j] = out.Changed[j], out.Changed[i] })
	r.Shuffle(len(out.Removed), func(i, j int) { out.Removed[i], out.Removed[j] = out.Removed[j], out.Removed[i] })
	return out
}

func checkDigest(t *testing.T, s *Snapshot) {
	t.Helper()
	var sum uint64
	for _, seg := range all(s) {
		sum += seg.Digest()
	}
	if s.Digest() != sum {
		t.Fatalf("the digest is %d, recomputed %d", s.Digest(), sum)
	}
}

// checkTotals: counts of a hostile worker must not wrap around into counts that look like room.
func checkTotals(t *testing.T, s *Snapshot) {
	t.Helper()
	var n Totals
	for _, seg := range s.All() {
		n = n.Merge(seg.Totals())
	}
	if n.Idle < 0 || n.Running < 0 || n.Desired < 0 || n.Pending < 0 || n.Members < 0 {
		t.Fatalf("totals %+v", n)
	}
}
