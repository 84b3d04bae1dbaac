// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

func TestProtoRoundTrip(t *testing.T) {
	for _, s := range []*Segment{sample(), uuids(), sample().Describe(almostUID, 3, Defaults{}), New(Key{"a", "b"})} {
		bytes, err := proto.Marshal(s.Proto())
		if err != nil {
			t.Fatal(err)
		}
		var p federationv1.EnvSegment
		if err := proto.Unmarshal(bytes, &p); err != nil {
			t.Fatal(err)
		}
		got, err := FromProto(&p)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Equal(s) || got.Digest() != s.Digest() {
			t.Errorf("got %+v, want %+v", got, s)
		}
		if got.UID() != s.UID() {
			t.Errorf("uid is %q, want %q", got.UID(), s.UID())
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
	if err != nil {
		t.Fatal(err)
	}
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
		"a long uid": {&federationv1.EnvSegment{Key: &federationv1.EnvKey{Namespace: "n", Name: "a"}, Uid: strings.Repeat("u", 129)}, "want at most 128"},
	} {
		s, err := FromProto(c.segment)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) || s != nil {
			t.Errorf("%s: %v, %v, want an error that says %q", name, s, err, c.says)
		}
	}
}

func TestFromProtoReadsWhatNewerPeersSay(t *testing.T) {
	read, err := MembersFromProto([]*federationv1.MemberSegment{{Name: "a", State: 77, Idle: -3}})
	if err != nil {
		t.Fatal(err)
	}
	m := read[0]
	if m.State != Unknown || m.Idle != 0 {
		t.Errorf("state %s, idle %d; want Unknown and 0", m.State, m.Idle)
	}
}

func TestValidName(t *testing.T) {
	label := strings.Repeat("a", 63)
	for _, s := range []string{"a", "0", "a-b", "a.b", "a1.2-b.c", "a--b", strings.Repeat("a", 253), label + "." + label} {
		if !ValidName(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"", "-", ".", "-a", "a-", ".a", "a.", "a..b", "a-.b", "a.-b", "A", "a_b", "a/b", "a\n", "ä", "a\x00", strings.Repeat("a", 254)} {
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
