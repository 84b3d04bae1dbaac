// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
)

func TestProtoRoundTrip(t *testing.T) {
	for _, s := range []*Segment{sample(), uuids(), sample().Describe(almostUID, 3, Defaults{}), New(Key{"a", "b"}),
		sample().Describe(almostUID, 3, Defaults{Fault: "f", Named: "mars,west"})} {
		bytes, err := proto.Marshal(s.Proto())
		must.Succeed(t, err)
		var p federationv1.EnvSegment
		must.Succeed(t, proto.Unmarshal(bytes, &p))
		got, err := FromProto(&p)
		must.Succeed(t, err)
		if !got.Equal(s) || got.Digest() != s.Digest() {
			t.Errorf("got %+v, want %+v", got, s)
		}
		if got.UID() != s.UID() {
			t.Errorf("uid is %q, want %q", got.UID(), s.UID())
		}
		for i, m := range p.GetMembers() {
			if said := m.GetSaturatedFor() != nil; said != (s.Members()[i].SaturatedFor > 0) || m.GetStartupTimeout() != nil {
				t.Errorf("durations of %v, that are none", m)
			}
		}
		if !s.Key().Is(p.GetKey()) || (Key{"a", "c"}).Is(p.GetKey()) {
			t.Errorf("the key is not that of %v", p.GetKey())
		}
		if len(s.Members()) > 0 && got.Members()[0] != s.Members()[0] {
			t.Errorf("member is %+v, want %+v", got.Members()[0], s.Members()[0])
		}
	}
}

func TestFromProtoOrdersMembers(t *testing.T) {
	p := sample().Proto()
	slices.Reverse(p.Members)
	s, err := FromProto(p)
	must.Succeed(t, err)
	if s.Digest() != sample().Digest() {
		t.Error("the order of members on the wire makes a difference")
	}
}

func TestFromProtoRefuses(t *testing.T) {
	env := func(namespace, name string, members ...string) *federationv1.EnvSegment {
		s := &federationv1.EnvSegment{Key: &federationv1.EnvKey{Namespace: namespace, Name: name}}
		for _, m := range members {
			s.Members = append(s.Members, &federationv1.MemberSegment{Name: m})
		}
		return s
	}
	for name, c := range map[string]struct {
		segment *federationv1.EnvSegment
		says    string
	}{
		"no key":             {&federationv1.EnvSegment{}, `namespace ""`},
		"no segment":         {nil, `namespace ""`},
		"no namespace":       {env("", "a"), `namespace ""`},
		"no name":            {env("n", ""), `name ""`},
		"a name of 4 MiB":    {env("n", strings.Repeat("a", 4<<20)), "(4194304 bytes) is not valid, want a DNS name"},
		"member twice":       {env("n", "a", "x", "y", "x"), `member "x" is named twice`},
		"nameless member":    {env("n", "a", ""), `member "" is not valid, want a DNS name`},
		"no DNS name":        {env("n", "a", "x", "../y"), `member "../y" is not valid`},
		"a member of 4 MiB":  {env("n", "a", strings.Repeat("x", 4<<20)), "bytes, want at most 65535"},
		"too many members":   {env("n", "a", make([]string, 256)...), "256 members, want at most 255"},
		"more than it holds": {env("n", "a", slices.Repeat([]string{strings.Repeat("x", 253)}, 200)...), "bytes, want at most 65535"},
		"a long image": {&federationv1.EnvSegment{Key: &federationv1.EnvKey{Namespace: "n", Name: "a"},
			Members: []*federationv1.MemberSegment{{Name: "x", Image: strings.Repeat("i", 1025)}}}, "(1025 bytes) is not valid, want at most 1024"},
		"a list of clusters with one that is no name": {&federationv1.EnvSegment{Key: &federationv1.EnvKey{Namespace: "n", Name: "a"},
			Named: "east,,west"}, `named "" is not valid`},
		"a long uid": {&federationv1.EnvSegment{Key: &federationv1.EnvKey{Namespace: "n", Name: "a"}, Uid: strings.Repeat("u", 129)},
			"want at most 128"},
	} {
		s, err := FromProto(c.segment)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) || s != nil {
			t.Errorf("%s: %v, %v, want an error that says %q", name, s, err, c.says)
		}
	}
}

// texts are the fields of a segment and of its first member, with their bounds.
var texts = map[string]struct {
	most int
	set  func(p *federationv1.EnvSegment, text string)
}{
	"uid":           {MaxUID, func(p *federationv1.EnvSegment, s string) { p.Uid = s }},
	"named":         {MaxNamed, func(p *federationv1.EnvSegment, s string) { p.Named = listOf(len(s)) }},
	"fault":         {MaxString, func(p *federationv1.EnvSegment, s string) { p.Fault = s }},
	"template":      {MaxName, func(p *federationv1.EnvSegment, s string) { p.Template = s }},
	"default type":  {MaxName, func(p *federationv1.EnvSegment, s string) { p.DefaultInstanceType = s }},
	"instance type": {MaxName, func(p *federationv1.EnvSegment, s string) { p.Members[0].InstanceType = s }},
	"group":         {MaxName, func(p *federationv1.EnvSegment, s string) { p.Members[0].ScalingGroup = s }},
	"image":         {MaxString, func(p *federationv1.EnvSegment, s string) { p.Members[0].Image = s }},
	"member":        {MaxName, func(p *federationv1.EnvSegment, s string) { p.Members[0].Name = s }},
	"namespace":     {MaxName, func(p *federationv1.EnvSegment, s string) { p.Key.Namespace = s }},
	"name":          {MaxName, func(p *federationv1.EnvSegment, s string) { p.Key.Name = s }},
}

// listOf is a list of names that has so many bytes.
func listOf(bytes int) string {
	return strings.Repeat("a,", (bytes-1)/2) + strings.Repeat("a", 2-bytes%2)
}

func TestBoundsOfTexts(t *testing.T) {
	for name, text := range texts {
		p := sample().Proto()
		text.set(p, "a")
		one := Size(p)
		text.set(p, strings.Repeat("a", text.most))
		if got := Size(p) - one; got != text.most-1 {
			t.Errorf("%s: %d bytes more count as %d", name, text.most-1, got)
		}
		if _, err := FromProto(p); err != nil {
			t.Errorf("%s of %d bytes: %v", name, text.most, err)
		}
		text.set(p, strings.Repeat("a", text.most+1))
		if _, err := FromProto(p); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s of %d bytes: %v", name, text.most+1, err)
		}
	}
}

func TestBoundsOfSegments(t *testing.T) {
	p := New(Key{"n", "e"}).Proto()
	for i := range MaxMembers {
		p.Members = append(p.Members, &federationv1.MemberSegment{Name: fmt.Sprint("m", i)})
	}
	if _, err := FromProto(p); err != nil {
		t.Errorf("as many members as there may be: %v", err)
	}
	for _, m := range p.GetMembers() {
		m.Image = strings.Repeat("i", min(MaxString, MaxSize-Size(p)))
	}
	if _, err := FromProto(p); err != nil || Size(p) != MaxSize {
		t.Errorf("as large as it may be, %d: %v", Size(p), err)
	}
	p.Uid = "u"
	if _, err := FromProto(p); !errors.Is(err, ErrInvalid) {
		t.Errorf("a byte larger: %v", err)
	}
}

func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"":                      `""`,
		strings.Repeat("a", 64): `"` + strings.Repeat("a", 64) + `"`,
		strings.Repeat("a", 65): `"` + strings.Repeat("a", 64) + `"… (65 bytes)`,
		"a\nb":                  `"a\nb"`,
	} {
		if got := Quote(text); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestUpdateIsFromProto whatever was there before, which stays as it was.
func TestUpdateIsFromProto(t *testing.T) {
	all := []*Segment{sample(), uuids(), New(sample().Key())}
	for _, d := range []Defaults{{Fault: "f"}, {Named: "mars,west"}, {Named: "west"}} { // in no digest, so among no edits
		s := uuids()
		s.Defaults = Share(d)
		all = append(all, s, New(sample().Key()).Describe(s.UID(), 0, d))
	}
	for name, edit := range edits {
		for _, s := range []*Segment{sample(), uuids()} {
			if name != "namespace" && name != "name" {
				edit(s)
				all = append(all, s)
			}
		}
	}
	for _, next := range all {
		for _, was := range all {
			before := was.Proto()
			got, err := Update(next.Proto(), was)
			if err != nil || !got.Equal(next) || got.UID() != next.UID() {
				t.Fatalf("%+v after %+v came to %+v, %v", next, was, got, err)
			}
			if !proto.Equal(was.Proto(), before) {
				t.Fatalf("%+v has changed %v to %+v", next, before, was)
			}
		}
	}
}

// Snapshots change no segment; because readers hold segments without a lock. What a segment was made of does not change it either.
func TestSnapshotsChangeNoSegment(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	held := map[*Segment]*federationv1.EnvSegment{}
	next := func() *Segment {
		s := randomSegment(r)
		for i := range s.Members() {
			s.Members()[i].SaturatedFor = time.Duration(r.IntN(3)) * time.Second
		}
		held[s] = s.Proto()
		return s
	}
	var a, b Snapshot
	for range 1000 {
		a.Put(next())
		b.Put(next())
		b.Remove(next().Key())
		a.Clone().Put(next())
		if r.IntN(10) == 0 {
			a.Apply(Diff(&a, &b))
		}
	}
	for s, was := range held {
		if !proto.Equal(s.Proto(), was) {
			t.Fatalf("%v has become %v", was, s.Proto())
		}
	}

	members := []Member{{Name: "a", Idle: 1}, {Name: "b"}}
	s := New(Key{"n", "e"}).With(members...)
	members[0].Idle = 2
	if got := s.Members()[0].Idle; got != 1 {
		t.Errorf("%d Pods are idle, want 1: the segment changed with the slice that it was made of", got)
	}
}

// Equal parts are stored once, also if two segments came over the wire.
func TestEqualPartsAreStoredOnce(t *testing.T) {
	one := sample()
	wire, err := proto.Marshal(one.With(one.Members()[0]).Proto())
	must.Succeed(t, err)
	var p, q federationv1.EnvSegment
	must.Succeed(t, proto.Unmarshal(wire, &p))
	must.Succeed(t, proto.Unmarshal(wire, &q))
	if unsafe.StringData(p.GetTemplate()) == unsafe.StringData(q.GetTemplate()) {
		t.Fatal("what came over the wire is in one place already")
	}
	first, err := FromProto(&p)
	must.Succeed(t, err)
	second, err := FromProto(&q)
	must.Succeed(t, err)
	for name, texts := range map[string][2]string{
		"Defaults": {first.Defaults.Get().Template, second.Defaults.Get().Template},
		"Shape":    {first.Members()[0].Shape.Get().Image, second.Members()[0].Shape.Get().Image},
	} {
		if texts[0] == "" || unsafe.StringData(texts[0]) != unsafe.StringData(texts[1]) {
			t.Errorf("%s: %q and %q are in two places", name, texts[0], texts[1])
		}
	}
	if first.members != nil {
		t.Error("a single member has a slice")
	}
	later, err := Update(&q, first)
	must.Succeed(t, err)
	if later.SharedKey() != first.SharedKey() || first.Bare().SharedKey() != first.SharedKey() {
		t.Error("segments of one Env have a key each")
	}
}

func TestFromProtoReadsWhatNewerPeersSay(t *testing.T) {
	read, err := MembersFromProto([]*federationv1.MemberSegment{{Name: "a", State: 77, Idle: -3}})
	must.Succeed(t, err)
	m := read[0]
	if m.State != Unknown || m.Idle != 0 {
		t.Errorf("state %s, idle %d; want Unknown and 0", m.State, m.Idle)
	}
	for state := Unknown; state <= Inconsistent; state++ {
		if got := stateFromProto(federationv1.MemberState(state)); got != state {
			t.Errorf("%s is read as %s", state, got)
		}
	}
	if got := stateFromProto(-1); got != Unknown {
		t.Errorf("state -1 is read as %s", got)
	}
}

func TestValidName(t *testing.T) {
	label := strings.Repeat("a", 63)
	for _, s := range []string{"a", "0", "a-b", "a.b", "a1.2-b.c", "a--b", "z9", "9z", strings.Repeat("a", 253), label + "." + label} {
		if !ValidName(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"", "-", ".", "-a", "a-", ".a", "a.", "a..b", "a-.b", "a.-b", "A", "a_b", "a/b", "a\n", "ä", "a\x00",
		strings.Repeat("a", 254)} {
		if ValidName(s) {
			t.Errorf("%q is taken", s)
		}
	}
}

// Size is what budgets count, so nothing that is kept may take more on the wire.
func TestSizeIsNoLessThanTheWire(t *testing.T) {
	p := sample().Proto()
	for _, m := range p.Members {
		m.Multiplier, m.Priority, m.Idle, m.ReadyIdle, m.Running = math.MinInt32, math.MinInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32
		m.Desired, m.Current, m.Pending, m.QueueCapacity = math.MaxInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32
		m.SaturatedFor, m.StartupTimeout = durationpb.New(math.MaxInt64), durationpb.New(math.MaxInt64)
	}
	p.Generation, p.DefaultMultiplier = math.MinInt64, math.MinInt32
	if Size(p) < proto.Size(p) {
		t.Errorf("counted as %d bytes, on the wire %d", Size(p), proto.Size(p))
	}
}
